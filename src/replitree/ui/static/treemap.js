// The parts of a table at one position as a treemap by partition: a pure function from a part set to SVG.
import { esc, many, number, size } from './text.js';

export const RECTANGLES_MAX = 2000;
const PARTITIONS_MAX = 400;

const value = (part, by) => Math.max(1, by === 'rows' ? part.rows : part.bytes);

const leafOf = (part, by) => ({
  value: value(part, by), level: part.level, mutation: part.mutation, name: part.name, count: 1, rows: part.rows, bytes: part.bytes,
});

// Parts of one partition as rectangles: each part, or, where there are too many, one for the parts of each level.
function leaves(parts, by, most) {
  if (parts.length <= most) return parts.map((part) => leafOf(part, by));
  const levels = new Map();
  for (const part of parts) {
    let level = levels.get(part.level);
    if (!level) levels.set(part.level, level = { value: 0, level: part.level, mutation: 0, name: '', count: 0, rows: 0, bytes: 0 });
    level.value += value(part, by);
    level.mutation = Math.max(level.mutation, part.mutation);
    level.count += 1;
    level.rows += part.rows;
    level.bytes += part.bytes;
  }
  return [...levels.values()];
}

// What is drawn of a part set: partitions, each with at most its share of the rectangles.
export function groupsOf(parts, by, only = null) {
  const names = only !== null && parts.partitions.has(only) ? [only] : [...parts.partitions.keys()];
  const sums = names.map((name) => {
    const own = parts.partitions.get(name);
    let total = 0, rows = 0, bytes = 0;
    for (const part of own) { total += value(part, by); rows += part.rows; bytes += part.bytes; }
    return { name, own, value: total, rows, bytes, count: own.length };
  }).sort((a, b) => b.value - a.value || (a.name < b.name ? -1 : 1));
  const shown = sums.slice(0, PARTITIONS_MAX), rest = sums.slice(PARTITIONS_MAX);
  const all = parts.length <= RECTANGLES_MAX;
  const share = Math.max(1, Math.floor(RECTANGLES_MAX / Math.max(1, shown.length)));
  const groups = shown.map((each) => ({ ...each, children: leaves(each.own, by, all ? Infinity : share) }));
  if (rest.length) {
    const sum = (of) => rest.reduce((total, each) => total + each[of], 0);
    const together = { value: sum('value'), level: 0, mutation: 0, name: '', count: sum('count'), rows: sum('rows'), bytes: sum('bytes') };
    groups.push({ ...together, name: `${number(rest.length)} more partitions`, isRest: true, children: [together] });
  }
  return groups;
}

const tone = (leaf) => `l${Math.min(leaf.level, 5)}`;

function says(leaf) {
  const what = leaf.count === 1 && leaf.name ? leaf.name : `${many(leaf.count, 'part')}, level ${leaf.level}`;
  return `${what}: ${many(leaf.rows, 'row')}, ${size(leaf.bytes)}${leaf.mutation ? `, changed at ${number(leaf.mutation)}` : ''}`;
}

// d3: the functions `hierarchy`, `treemap` and `treemapSquarify` of d3-hierarchy.
export function treemap(parts, { d3, width, height, by = 'bytes', only = null }) {
  const groups = groupsOf(parts, by, only);
  if (!groups.length) {
    return `<svg class="map" viewBox="0 0 ${width} 60" width="${width}" height="60" role="img" aria-label="no parts"><text class="note" x="${width / 2}" y="34" text-anchor="middle">no parts here</text></svg>`;
  }
  const root = d3.hierarchy({ children: groups }).sum((each) => (each.children ? 0 : each.value));
  const top = groups.length > 60 ? 0 : 17;
  d3.treemap().size([width, height]).paddingOuter(1).paddingInner(1).paddingTop((node) => (node.depth === 1 ? top : 0)).round(true)(root);
  const drawn = root.children.map((group) => {
    const wide = group.x1 - group.x0, high = group.y1 - group.y0, { data } = group;
    const rectangles = group.children.map((leaf) => {
      const w = leaf.x1 - leaf.x0, h = leaf.y1 - leaf.y0;
      if (w <= 0 || h <= 0) return '';
      const text = says(leaf.data);
      const label = leaf.data.count > 1 ? `${number(leaf.data.count)} × level ${leaf.data.level}` : `${leaf.data.name.slice(data.name.length + 1)}`;
      const fits = w > label.length * 6.6 + 8 && h > 15;
      return `<rect class="${tone(leaf.data)}${leaf.data.mutation ? ' mutated' : ''}" x="${leaf.x0}" y="${leaf.y0}" width="${w}" height="${h}"><title>${esc(data.isRest ? data.name : data.name)} ${esc(text)}</title></rect>${
        fits ? `<text class="part" x="${leaf.x0 + 4}" y="${leaf.y0 + 12}">${esc(label)}</text>` : ''}`;
    }).join('');
    const head = `${data.name} · ${many(data.count, 'part')}`;
    const title = top && wide > 40 ? `<text class="group" x="${group.x0 + 4}" y="${group.y0 + 13}">${esc(head.slice(0, Math.max(1, Math.floor((wide - 8) / 6.8))))}</text>` : '';
    return `<g${data.isRest ? '' : ` data-partition="${esc(data.name)}"`}><rect class="frame" x="${group.x0}" y="${group.y0}" width="${wide}" height="${high}"/>${title}${rectangles}</g>`;
  });
  const text = `${many(parts.length, 'part')} in ${many(parts.partitions.size, 'partition')}${only === null ? '' : `, partition ${only}`}`;
  return `<svg class="map" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="${esc(text)}">${drawn.join('')}</svg>`;
}

// The table behind the picture.
export function partitionRows(parts) {
  return parts.names().map((name) => {
    const own = parts.partitions.get(name);
    let rows = 0, bytes = 0, level = 0;
    for (const part of own) { rows += part.rows; bytes += part.bytes; level = Math.max(level, part.level); }
    return [name, number(own.length), number(rows), size(bytes), number(level)];
  });
}
