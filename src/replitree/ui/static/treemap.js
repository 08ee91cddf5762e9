// The parts of a table at one position as a treemap by partition: a pure function from a part set to SVG.
import { esc, many, number, size } from './text.js';

export const RECTANGLES_MAX = 2000;
const PARTITIONS_MAX = 400;

const leafOf = (part, by) => ({
  value: Math.max(1, part[by]), level: part.level, mutation: part.mutation, name: part.name, count: 1, rows: part.rows, bytes: part.bytes,
});

// Parts of one partition as rectangles: each part, or, where there are too many, one for the parts of each level.
function leaves(own, sums, by, most) {
  if (own.length <= most) return own.map((part) => leafOf(part, by));
  return [...sums.levels.values()].map((level) => ({ ...level, name: '', value: level.values[by] }));
}

// The partitions with the largest areas, the largest first, without sorting all of them.
function largest(names, valueOf) {
  let chosen = names.map((name) => ({ name, value: valueOf(name) }));
  if (chosen.length > PARTITIONS_MAX) {
    const ordered = Float64Array.from(chosen, (each) => each.value).sort();
    const least = ordered[ordered.length - PARTITIONS_MAX];
    chosen = chosen.filter((each) => each.value >= least);
  }
  return chosen.sort((a, b) => b.value - a.value || (a.name < b.name ? -1 : 1)).slice(0, PARTITIONS_MAX);
}

// Why the parts of partitions are not merged yet, in words by partition.  found: what the page's server says of the selector;
// status: of the table.
export function waitWords(found, status) {
  const paused = status.replicas.filter((each) => each.merges_paused), leads = status.replicas.find((each) => each.leader === each.name);
  const running = status.replicas.flatMap((each) => each.running).filter((each) => each.kind === 'merge').map((each) => each.result);
  const opened = new Set(status.replicas.flatMap((each) => each.open_inserts));
  return Object.fromEntries(found.waits.map((each) => {
    const merging = new Set(running.filter((name) => name.startsWith(`${each.partition}_`))).size;
    const words = [];
    if (merging) words.push(`${many(merging, 'merge')} of this partition runs`);
    if (leads && paused.includes(leads)) words.push(`merges are paused on ${leads.name}, which leads`);
    else if (!leads && paused.length) words.push(`no replica leads; merges are paused on ${paused.map((one) => one.name).join(', ')}`);
    else if (!leads) words.push('no replica leads, so none proposes merges');
    if (each.chosen) words.push(`a merge of ${many(each.chosen, 'part')} is worth its cost: the leader proposes it when a slot is free`);
    else if (!merging) words.push(`one merge of all would have a fan-in of ${each.fan_in}: the leader waits for ${each.parts > found.parts_crowded ? found.fan_in_min : found.fan_in_max}${each.parts > found.parts_calm ? '' : `, as there are at most ${found.parts_calm} parts`}, or until the wait has cost as much as the merge`);
    if (opened.size) words.push(`parts of ${many(opened.size, 'insert')} whose quorum is open are not merged`);
    return [each.partition, words.join('; ')];
  }));
}

// What is drawn of a part set: partitions, each with at most its share of the rectangles.
export function groupsOf(parts, by, only = null, most = RECTANGLES_MAX) {
  const names = only !== null && parts.partitions.has(only) ? [only] : [...parts.partitions.keys()];
  const shown = largest(names, (name) => parts.sumsOf(name).values[by]);
  const share = parts.length <= most ? Infinity : Math.max(1, Math.floor(most / Math.max(1, shown.length)));
  const groups = shown.map(({ name, value }) => {
    const own = parts.partitions.get(name), sums = parts.sumsOf(name);
    return { name, value, rows: sums.rows, bytes: sums.bytes, count: sums.count, children: leaves(own, sums, by, share) };
  });
  if (names.length > shown.length) {
    const rest = { value: 0, level: 0, mutation: 0, name: '', count: 0, rows: 0, bytes: 0 };
    const add = (sign, sums) => {
      rest.value += sign * sums.values[by];
      for (const of of ['count', 'rows', 'bytes']) rest[of] += sign * sums[of];
    };
    for (const name of names) add(1, parts.sumsOf(name));
    for (const { name } of shown) add(-1, parts.sumsOf(name));
    groups.push({ ...rest, name: `${number(names.length - shown.length)} more partitions`, isRest: true, children: [rest] });
  }
  return groups;
}

const tone = (leaf) => `l${Math.min(leaf.level, 5)}`;

function says(leaf) {
  const what = leaf.count === 1 && leaf.name ? leaf.name : `${many(leaf.count, 'part')}, level ${leaf.level}`;
  return `${what}: ${many(leaf.rows, 'row')}, ${size(leaf.bytes)}${leaf.mutation ? `, changed at ${number(leaf.mutation)}` : ''}`;
}

// d3: the functions `hierarchy`, `treemap` and `treemapSquarify` of d3-hierarchy; waits: by partition why its parts wait to be merged.
export function treemap(parts, { d3, width, height, by = 'bytes', only = null, most = RECTANGLES_MAX, waits = {} }) {
  const groups = groupsOf(parts, by, only, most);
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
      return `<rect class="${tone(leaf.data)}${leaf.data.mutation ? ' mutated' : ''}" x="${leaf.x0}" y="${leaf.y0}" width="${w}" height="${h}"><title>${esc(data.name)} ${esc(text)}</title></rect>${
        fits ? `<text class="part" x="${leaf.x0 + 4}" y="${leaf.y0 + 12}">${esc(label)}</text>` : ''}`;
    }).join('');
    const head = `${data.name} · ${many(data.count, 'part')}`;
    const title = top && wide > 40 ? `<text class="group" x="${group.x0 + 4}" y="${group.y0 + 13}">${esc(head.slice(0, Math.max(1, Math.floor((wide - 8) / 6.8))))}</text>` : '';
    const why = waits[data.name] ? `<title>${esc(`${data.name}: ${waits[data.name]}`)}</title>` : '';
    return `<g${data.isRest ? '' : ` data-partition="${esc(data.name)}"`}><rect class="frame" x="${group.x0}" y="${group.y0}" width="${wide}" height="${high}"${why ? `>${why}</rect>` : '/>'}${title}${rectangles}</g>`;
  });
  const text = `${many(parts.length, 'part')} in ${many(parts.partitions.size, 'partition')}${only === null ? '' : `, partition ${only}`}`;
  return `<svg class="map" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="${esc(text)}">${drawn.join('')}</svg>`;
}

// The table behind the picture.
export function partitionRows(parts) {
  return parts.names().map((name) => {
    const { count, rows, bytes, level } = parts.sumsOf(name);
    return [name, number(count), number(rows), size(bytes), number(level)];
  });
}
