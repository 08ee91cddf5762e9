// The number line of one log as SVG: a pure function from what is known to a string.
import { GROUPS, esc, groupOf, many, number, stateOf } from './text.js';

const LEFT = 64, RIGHT = 14, TOP = 8, BARS = 64, LANE = 22, AXIS = 26;

// The scale of the line: positions from `from` to `to`, in pixels.
export function scaleOf({ from, to, width }) {
  const last = Math.max(to, from + 1);
  const inner = Math.max(1, width - LEFT - RIGHT);
  return {
    x: (index) => LEFT + (inner * (Math.min(Math.max(index, from), last) - from)) / (last - from),
    index: (x) => Math.round(from + ((last - from) * Math.min(Math.max(x - LEFT, 0), inner)) / inner),
    inner,
    last,
  };
}

// Where the cursor stands: all else in the picture stays as it is when the position moves.
export const cursorAt = (position, scale) => `translate(${scale.x(position).toFixed(1)} 0)`;

// Entries counted by place and group: at most one bar for each two pixels.
function binned(entries, { from, last, inner }) {
  const bins = Math.max(1, Math.min(last - from, Math.floor(inner / 3)));
  const found = Array.from({ length: bins }, () => new Map());
  for (const entry of entries) {
    if (entry.i < from || entry.i >= last) continue;
    const bin = found[Math.min(bins - 1, Math.floor(((entry.i - from) * bins) / (last - from)))];
    const group = groupOf(entry.kind).name;
    bin.set(group, (bin.get(group) ?? 0) + 1);
  }
  return found;
}

function bars(entries, from, scale) {
  const bins = binned(entries, { from, last: scale.last, inner: scale.inner });
  const most = Math.max(1, ...bins.map((bin) => [...bin.values()].reduce((a, b) => a + b, 0)));
  const wide = scale.inner / bins.length;
  const gap = wide > 4 ? 1 : 0;
  // One path for each colour: thousands of bars cost as much as one.
  const paths = new Map(GROUPS.map((group) => [group.name, '']));
  bins.forEach((bin, at) => {
    let y = TOP + BARS;
    const x = LEFT + at * wide;
    for (const { name } of GROUPS) {
      const high = ((bin.get(name) ?? 0) / most) * BARS;
      if (!high) continue;
      y -= high;
      paths.set(name, `${paths.get(name)}M${x.toFixed(1)} ${y.toFixed(1)}h${(wide - gap).toFixed(1)}v${high.toFixed(1)}h${(gap - wide).toFixed(1)}z`);
    }
  });
  return GROUPS.map(({ name }) => (paths.get(name) ? `<path class="g-${name}" d="${paths.get(name)}"/>` : '')).join('');
}

// Whether a replica has the parts of an insert whose quorum is open, on its lane.
function holds(replica, y, quorums, scale) {
  return quorums.map(({ index, quorum, holders }) => {
    const has = holders.includes(replica.name);
    const says = `insert ${number(index)}: ${replica.name} ${has ? 'has its parts' : 'has not got its parts yet'}; ${number(holders.length)} of ${number(quorum)} have them`;
    return `<g><title>${esc(says)}</title><circle class="hold ${has ? 'has' : 'lacks'}" cx="${scale.x(index + 0.5).toFixed(1)}" cy="${y + 11}" r="5"/>${has ? `<path class="tick" d="M${(scale.x(index + 0.5) - 2.5).toFixed(1)} ${y + 11}l2 2.2l3.4 -4.4"/>` : ''}</g>`;
  }).join('');
}

function lane(replica, y, from, to, scale) {
  const pointer = replica.log_pointer ?? from;
  const done = Math.min(replica.index ?? pointer - replica.queue, pointer);
  const piece = (kind, low, high) => (high > low && high > from
    ? `<rect class="lane ${kind}" x="${scale.x(low).toFixed(1)}" y="${y + 5}" width="${Math.max(1, scale.x(high) - scale.x(low)).toFixed(1)}" height="12"/>` : '');
  const state = stateOf(replica);
  const says = `${replica.name}, ${state}: executed below ${number(done)}, pulled below ${number(pointer)}, ${
    many(Math.max(0, to - pointer), 'entry', 'entries')} not pulled`;
  return `<g><title>${esc(says)}</title><text class="name" x="4" y="${y + 15}">${esc(replica.name.slice(0, 8))}</text>${
    piece('done', from, done)}${piece('queue', done, pointer)}${piece('ahead', pointer, to)}${
    state === 'active' ? '' : `<text class="flag" x="${LEFT + 6}" y="${y + 15}">⚑ ${esc(state)}</text>`}</g>`;
}

function axis(from, to, y, scale) {
  const steps = Math.max(1, Math.floor(scale.inner / 110));
  const raw = (to - from) / steps;
  const power = 10 ** Math.floor(Math.log10(Math.max(1, raw)));
  const step = Math.max(1, [1, 2, 5, 10].map((each) => each * power).find((each) => each >= raw) ?? 1);
  const marks = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) marks.push(at);
  return `<line class="axis" x1="${LEFT}" x2="${LEFT + scale.inner}" y1="${y}" y2="${y}"/>${marks.map((at) => {
    const x = scale.x(at);
    const anchor = x > LEFT + scale.inner - 24 ? 'end' : x < LEFT + 24 ? 'start' : 'middle';
    return `<line class="axis" x1="${x.toFixed(1)}" x2="${x.toFixed(1)}" y1="${y}" y2="${y + 4}"/><text class="mark" text-anchor="${anchor}" x="${x.toFixed(1)}" y="${y + 16}">${number(at)}</text>`;
  }).join('')}`;
}

// state: {entries, from, to, replicas, opened, quorums, position}; width in pixels.  opened: inserts whose quorum is open;
// quorums: which replicas have their parts, as far as that is known.
export function numberLine(state, width) {
  const { entries, from, to, replicas, opened = [], quorums = [], position = null } = state;
  const scale = scaleOf({ from, to, width });
  const lanes = TOP + BARS + AXIS;
  const height = lanes + replicas.length * LANE + 6;
  const rings = opened.map((index) => `<circle class="ring" cx="${scale.x(index + 0.5).toFixed(1)}" cy="${TOP + 6}" r="4"><title>the quorum of insert ${number(index)} is open</title></circle>`);
  const says = `The log from ${number(from)} to ${number(to)}: ${GROUPS.map((group) => {
    const count = entries.filter((entry) => groupOf(entry.kind) === group).length;
    return count ? many(count, group.name === 'other' ? 'other entry' : group.name, group.name === 'other' ? 'other entries' : undefined) : '';
  }).filter(Boolean).join(', ') || 'no entries'}`;
  const cursor = position === null ? '' : `<g class="cursor" transform="${cursorAt(position, scale)}"><line x1="0" x2="0" y1="${TOP}" y2="${height - 4}"/><path d="M0 ${TOP + 1}l-5 -8h10z"/></g>`;
  return `<svg class="line" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="${esc(says)}"><defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="hatch-back" width="6" height="6"/><rect class="hatch-line" width="2.5" height="6"/></pattern></defs><text class="name" x="4" y="${TOP + BARS - 4}">entries</text>${
    bars(entries, from, scale)}${axis(from, to, TOP + BARS, scale)}${rings.join('')}${
    replicas.map((replica, at) => lane(replica, lanes + at * LANE, from, to, scale) + holds(replica, lanes + at * LANE, quorums, scale)).join('')}${cursor}</svg>`;
}

// The line of a card: how far each replica is, and nothing else.
export function lagLine(table, width = 240) {
  const to = Math.max(1, table.log_tail), lag = Math.max(1, ...table.replicas.map((each) => each.lag ?? 0));
  const from = Math.max(0, to - Math.max(20, lag * 2));
  const x = (index) => 8 + ((width - 16) * (Math.min(Math.max(index, from), to) - from)) / Math.max(1, to - from);
  const high = table.replicas.length * 8 + 4;
  const rows = table.replicas.map((each, at) => {
    const pointer = each.log_pointer ?? from, done = Math.min(each.index ?? pointer, pointer);
    return `<rect class="lane ahead" x="8" y="${at * 8 + 2}" width="${width - 16}" height="5"/><rect class="lane done" x="8" y="${at * 8 + 2}" width="${Math.max(0, x(done) - 8).toFixed(1)}" height="5"/>`;
  });
  return `<svg class="line" viewBox="0 0 ${width} ${high}" role="img" aria-label="${esc(table.replicas.map((each) => `${each.name} is ${number(each.lag)} behind`).join(', '))}">${rows.join('')}</svg>`;
}
