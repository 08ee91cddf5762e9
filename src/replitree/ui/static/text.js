// Words, numbers and the kinds of entries: pure functions that give text, or HTML with everything of others escaped.

const ENTITIES = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };

export const esc = (text) => String(text ?? '').replace(/[&<>"']/g, (sign) => ENTITIES[sign]);

export const number = (value) => (value === null || value === undefined ? '–' : String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, ','));

export function size(bytes) {
  if (bytes === null || bytes === undefined) return '–';
  let value = bytes, unit = 0;
  while (value >= 1000 && unit < 5) { value /= 1000; unit++; }
  return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${['B', 'kB', 'MB', 'GB', 'TB', 'PB'][unit]}`;
}

export function span(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

// A time of coordination in UTC, to the second.
export const time = (ms) => (ms ? new Date(ms).toISOString().slice(0, 19).replace('T', ' ') : '–');

export const many = (count, one, more = `${one}s`) => `${number(count)} ${count === 1 ? one : more}`;

// What kinds of entries look like: the group decides the colour, the sign is there for those who see no colours.
export const GROUPS = [
  { name: 'insert', kinds: ['get'], sign: '+' },
  { name: 'merge', kinds: ['merge'], sign: '⋎' },
  { name: 'change', kinds: ['mutate', 'rewrite'], sign: '~' },
  { name: 'remove', kinds: ['drop', 'fail', 'lost'], sign: '−' },
  { name: 'other', kinds: [], sign: '·' },
];

const BY_KIND = new Map(GROUPS.flatMap((group) => group.kinds.map((kind) => [kind, group])));

export const groupOf = (kind) => BY_KIND.get(kind) ?? GROUPS[GROUPS.length - 1];

export const legend = () => `<ul class="legend">${GROUPS.map((group) => `<li><span class="swatch g-${group.name}" aria-hidden="true"></span>${group.sign} ${
  group.name}${group.kinds.length > 1 ? ` <small>(${group.kinds.join(', ')})</small>` : ''}</li>`).join('')}</ul>`;

// A table with a caption; cells are text, or {html} that was escaped already, and numbers are set to the right.
export function table(caption, heads, rows, empty = 'nothing') {
  if (!rows.length) return `<p class="none">${esc(empty)}</p>`;
  const cell = (value) => (value !== null && typeof value === 'object' ? value.html : esc(value));
  const isRight = (value) => typeof value === 'string' && /^(\d{1,3}(,\d{3})*|[\d.]+ [kMGTP]?B|–)$/.test(value);
  // A column of numbers is set to the right, with its head.
  const right = heads.map((_, at) => rows.every((row) => isRight(row[at])));
  const side = (at) => (right[at] ? ' class="right"' : '');
  return `<div class="scroll" tabindex="0" role="group" aria-label="${esc(caption)}"><table><caption>${esc(caption)}</caption><thead><tr>${
    heads.map((head, at) => `<th scope="col"${side(at)}>${esc(head)}</th>`).join('')}</tr></thead><tbody>${
    rows.map((row) => `<tr>${row.map((value, at) => `<td${side(at)}>${cell(value)}</td>`).join('')}</tr>`).join('')
  }</tbody></table></div>`;
}

const STATES = { active: 'good', starting: 'busy', recovering: 'busy', read_only: 'warn', halted: 'bad', stopped: 'bad', down: 'bad', lost: 'bad' };

export const stateClass = (state) => STATES[state] ?? 'warn';

export const chip = (state) => `<span class="chip s-${stateClass(state)}">${esc(state)}</span>`;

export const stateOf = (replica) => (replica.mark && replica.mark !== 'good' ? replica.mark : replica.state);
