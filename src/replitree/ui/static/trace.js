// A trace of the checker: from what `replitree verify explore --json` and `simulate --json` print, or from their text, to steps
// on lanes.  Pure functions; docs/verification.md says how a trace is read.
import { esc, many, number } from './text.js';

const LEFT = 92, LANE = 34, TOP = 22, STEP = 26, LABEL = 96;
const ACTORS = /^(candidate|member|reader|mover|client|shard|replica|writer|process) (\d+)\b/;
const SHORT = /^([a-z]{1,3}\d*)\s/;

// The group decides the colour, the sign is there for those who see no colours.
export const KINDS = [
  { name: 'write', sign: '+', group: 'insert', says: 'a commit, or something that is stored' },
  { name: 'answer', sign: '!', group: 'merge', says: 'an answer to a client' },
  { name: 'fault', sign: '?', group: 'change', says: 'no answer, a stale read, a refusal, a lost session' },
  { name: 'death', sign: '†', group: 'remove', says: 'a process dies' },
  { name: 'other', sign: '·', group: 'other', says: 'reads, and all else' },
];

// The worst that is in a step decides.
function kindOf(lines) {
  const text = lines.map((each) => `${each.verb} ${each.what} ${each.outcome}`).join('\n');
  if (/\bdies\b|is killed/.test(text)) return 'death';
  if (/no answer|answer lost|\bstale\b|as it was before|loses its session|\blate\b|session .*ends|refused|Refused|NotKnown|silent|lost in/.test(text)) return 'fault';
  if (lines.some((each) => each.verb === 'answer') || /acknowledge|hears|heard/.test(text)) return 'answer';
  if (/\bapplied\b|-> Applied|\bcommit|\bCommit|\bpublish|\bstage|\bStage|stored|REPLACE|PUT|creates/.test(text)) return 'write';
  return 'other';
}

// Who does what in one line of a numbered trace: a name, what it is at, a verb, and what is asked for.
function split(body) {
  const published = /^([A-Z][A-Za-z]+)(?: ([a-z]+\d*))?\s{2,}(.*)$/.exec(body);
  if (published) return { actor: published[2] ?? 'all', doing: '', verb: published[1], what: published[3] };
  let who = '', rest = '';
  if (body.length > 8 && body[8] === ' ') [who, rest] = [body.slice(0, 8).trim(), body.slice(9)];
  else {
    // A name that is longer than its column.
    const words = body.split(' ');
    let taken = 1;
    while (taken < words.length && words.slice(0, taken).join(' ').length <= 8) taken++;
    if (/^\d+$/.test(words[taken] ?? '')) taken++;
    [who, rest] = [words.slice(0, taken).join(' '), words.slice(taken).join(' ')];
  }
  const [actor, ...doing] = who.split(/\s+/);
  const asked = /^(\S+)\s*(.*)$/.exec(rest.trim()) ?? ['', '', ''];
  return { actor, doing: doing.join(' '), verb: asked[1], what: asked[2] };
}

// The same of a trace whose lines are sentences.
function sentence(body, before) {
  const named = ACTORS.exec(body), short = SHORT.exec(body), the = /^the ([a-z]+) /.exec(body);
  const actor = named ? named[0] : the ? the[1] : /^its? /.test(body) ? before : short && short[1] !== 'it' ? short[1] : /^[A-Z]{3,} /.test(body) ? 'the store' : 'all';
  const prefix = named ? named[0] : the ? the[0] : actor === short?.[1] ? short[0] : '';
  const rest = body.slice(prefix.length).replace(/^\s*(\(\d+\))?[:,]?\s*/, '');
  const [, verb = '', what = ''] = /^(\S+)\s*(.*)$/.exec(rest) ?? [];
  return { actor, doing: '', verb, what };
}

// Steps, actors in the order of their first steps, and the lines of the state at the end.
export function stepsOf(lines) {
  const cut = lines.indexOf('');
  const way = cut < 0 ? lines : lines.slice(0, cut), end = cut < 0 ? [] : lines.slice(cut + 1);
  const isNumbered = way.some((line) => /^[ \d]{2}\d .{8}/.test(line)) && way.every((line) => /^(?:[ \d]{2}\d| {3}|\d{4,}) |^\s*\d+\.\d+ /.test(line));
  const steps = [];
  let before = 'all';
  way.forEach((line) => {
    const [, at, text] = isNumbered ? /^ {0,10}(\d+(?:\.\d+)?)? ?(.*)$/.exec(line.startsWith('    ') && !/^\s*\d+\.\d+ /.test(line) ? ` ${line.slice(4)}` : line) : ['', '', line];
    const arrow = text.lastIndexOf(' -> ');
    const body = arrow < 0 ? text : text.slice(0, arrow), outcome = arrow < 0 ? '' : text.slice(arrow + 4).trim();
    const found = { ...(isNumbered ? split(body.trimStart() === '' ? 'all' : body) : sentence(body, before)), outcome, line };
    before = found.actor;
    if (isNumbered && at === undefined && steps.length) steps[steps.length - 1].lines.push(found);
    else steps.push({ at: at || String(steps.length + 1), actor: found.actor, lines: [found] });
  });
  for (const step of steps) step.kind = kindOf(step.lines);
  return { steps, actors: [...new Set(steps.map((each) => each.actor))], end };
}

function resultOf(found) {
  const violations = Array.isArray(found.violations) ? found.violations.filter((each) => each !== null && typeof each === 'object') : [];
  return {
    name: String(found.name ?? 'a trace'), mutant: found.mutant ?? null, states: found.states ?? null, seconds: found.seconds ?? null,
    violations: violations.map((each) => ({ invariant: String(each.invariant ?? ''), what: String(each.what ?? ''), steps: each.steps ?? null, seed: each.seed ?? null })),
    ...stepsOf((Array.isArray(found.trace) ? found.trace : []).map(String)),
  };
}

const looksRight = (value) => value !== null && typeof value === 'object' && !Array.isArray(value) && (Array.isArray(value.trace) || Array.isArray(value.violations));

// What a file has: results of explorations and simulations; an Error says what to do if it has none.
export function readTrace(text) {
  const whole = parsed(text);
  const lines = whole === undefined ? text.split('\n') : [];
  const values = whole === undefined ? lines.filter((line) => line.startsWith('{')).map(parsed) : [whole].flat();
  const found = values.filter(looksRight);
  if (found.length) return found.map(resultOf);
  // What `explore` prints for people: a line, the steps, the state, the verdict; or a golden counterexample.
  const begin = lines.findIndex((line) => /^ {0,2}\d+ \S|^ *\d+\.\d+ \S/.test(line));
  if (begin < 0) throw new Error('this file has no trace: write one with `replitree verify explore MODEL --mutant NAME --json > trace.json`');
  const what = lines.slice(0, begin).find((line) => /^[A-Z][A-Z0-9]*: /.test(line)) ?? lines.find((line) => /violated|^[A-Z][A-Z0-9]*: /.test(line)) ?? '';
  const blank = lines.indexOf('', begin), rest = blank < 0 ? [] : lines.slice(blank + 1);
  const after = rest.indexOf('');
  const trace = [...lines.slice(begin, blank < 0 ? undefined : blank), '', ...(after < 0 ? rest : rest.slice(0, after))];
  return [resultOf({ name: 'a trace', trace, violations: what ? [{ invariant: what.split(':')[0], what }] : [] })];
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

const doing = (line) => [line.doing, line.verb, line.what].filter(Boolean).join(' ');

// Lanes of actors, a box for each step, the chosen one framed; the last step ends in the violation.
export function traceLanes({ steps, actors, violations }, chosen, width) {
  if (!steps.length) return '<p class="none">No steps are in this file.</p>';
  // Few steps are wide enough for their words.
  const wide = Math.min(LABEL, Math.max(STEP, (width - LEFT - 30) / steps.length));
  const full = Math.max(width, Math.ceil(LEFT + wide * steps.length + 30)), height = TOP + actors.length * LANE + 8;
  const y = (actor) => TOP + actors.indexOf(actor) * LANE;
  const sign = new Map(KINDS.map((each) => [each.name, each]));
  const lanes = actors.map((actor) => `<line class="axis" x1="${LEFT}" x2="${full - 20}" y1="${y(actor) + 15}" y2="${y(actor) + 15}"/><text class="name" x="4" y="${y(actor) + 19}">${esc(actor.slice(0, 12))}</text>`);
  const boxes = steps.map((step, at) => {
    const x = LEFT + at * wide, { group, sign: mark } = sign.get(step.kind), verb = step.lines[0].verb;
    const label = wide > verb.length * 7 + 18 ? `${mark} ${verb}` : mark;
    const says = `step ${step.at}, ${step.actor}: ${step.lines.map((line) => `${doing(line)}${line.outcome ? ` → ${line.outcome}` : ''}`).join('; ')}`;
    return `<g class="step${at === chosen ? ' chosen' : ''}" data-at="${at}"><title>${esc(says.slice(0, 600))}</title><rect class="g-${group}" x="${(x + 2).toFixed(1)}" y="${y(step.actor) + 3}" width="${(wide - 4).toFixed(1)}" height="24" rx="3"/><text class="on" x="${(x + wide / 2).toFixed(1)}" y="${y(step.actor) + 19}" text-anchor="middle">${esc(label)}</text>${
      at % Math.ceil(40 / wide) === 0 ? `<text class="mark" x="${(x + wide / 2).toFixed(1)}" y="14" text-anchor="middle">${esc(step.at)}</text>` : ''}</g>`;
  });
  const broken = violations.length ? `<text class="flag" x="${(LEFT + wide * steps.length + 8).toFixed(1)}" y="${y(steps[steps.length - 1].actor) + 20}"><title>${esc(violations[0].what)}</title>✖</text>` : '';
  const says = `${many(steps.length, 'step')} of ${actors.join(', ')}${violations.length ? `; then ${violations[0].what}` : ''}`;
  return `<svg class="trace" viewBox="0 0 ${full} ${height}" width="${full}" height="${height}" role="img" aria-label="${esc(says)}">${lanes.join('')}${boxes.join('')}${broken}</svg>`;
}

// One step in words: what was asked for, and what came back.
export function stepWords(step, count) {
  const lines = step.lines.map((line) => `<li><code>${esc(doing(line))}</code>${line.outcome ? ` <span class="outcome">→ ${esc(line.outcome)}</span>` : ''}</li>`).join('');
  return `<p><b>Step ${esc(step.at)}</b> of ${number(count)}, <b>${esc(step.actor)}</b>${step.lines[0].doing ? ` in ${esc(step.lines[0].doing)}` : ''}</p><ul class="effects">${lines}</ul>`;
}
