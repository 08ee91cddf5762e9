// Tablets and coordination: candidates, members and generations of the groups that the page was told of, and the servers that
// order the logs of all tables.
import { ask, put, widthOf } from './dom.js';
import { chip, esc, many, number, span, table } from './text.js';

const ASK_MS = 4000, LEFT = 70, LANE = 26;

const ROLES = { leader: 'good', standby: 'busy', candidate: 'busy', deposed: 'warn' };
const role = (each) => (each.problem ? chip('down') : `<span class="chip s-${ROLES[each.role] ?? 'warn'}">${esc(each.role)}</span>`);

function candidateRows(candidates) {
  return candidates.map((each) => [
    { html: `<code class="kind">${esc(each.url)}</code>` }, each.machine || '–', { html: role(each) }, number(each.generation), number(each.step), number(each.confirmed),
    each.snapshot ?? '–', number(each.commands), each.away.length ? each.away.map((member) => `member ${member}`).join(', ') : each.role === 'leader' ? 'none' : '–',
    each.problem || each.reason || (each.failures ? `not elected ${many(each.failures, 'time')}` : each.is_mended === false ? 'members lack entries; the leader restores them' : ''),
  ]);
}

// The generations of a tablet, oldest first, as a line of steps each: confirmed, tail, snapshots.
export function generationLines(generations, width) {
  const last = Math.max(1, ...generations.map((each) => each.last ?? 0));
  const x = (step) => LEFT + ((width - LEFT - 14) * Math.max(0, step)) / last;
  const lanes = generations.map((each, at) => {
    const y = at * LANE, begin = Math.max(0, (each.first ?? 1) - 1), end = each.last ?? begin, sure = Math.min(end, Math.max(begin, each.confirmed));
    const piece = (kind, from, to) => (to > from ? `<rect class="lane ${kind}" x="${x(from).toFixed(1)}" y="${y + 5}" width="${Math.max(2, x(to) - x(from)).toFixed(1)}" height="13"/>` : '');
    const snapshots = each.snapshots.map((step) => `<path class="snapshot" d="M${x(step).toFixed(1)} ${y + 4}l5 7l-5 7l-5 -7z"><title>snapshot at step ${number(step)}</title></path>`).join('');
    // The log below a snapshot is collected, and with it the zero entry of the oldest generation.
    const isLacking = each.zero === null && at > 0;
    const zero = each.zero === null ? (isLacking ? 'its zero entry is not there' : 'its zero entry was collected') : `begins at snapshot ${each.zero.snapshot}, after ${each.zero.predecessor}`;
    const says = `generation ${each.generation}: ${each.first === null ? 'no entries' : `${many(each.entries, 'entry', 'entries')}, steps ${number(each.first)} to ${number(each.last)}`}, confirmed up to ${number(each.confirmed)}; ${zero}`;
    return `<g><title>${esc(says)}</title><text class="name" x="4" y="${y + 16}">gen. ${number(each.generation)}</text>${piece('done', begin, sure)}${piece('queue', sure, end)}${snapshots}${isLacking ? `<text class="flag" x="${LEFT + 4}" y="${y + 16}">⚑ no zero entry</text>` : ''}</g>`;
  });
  const height = generations.length * LANE + 20;
  const says = generations.map((each) => `generation ${each.generation} has ${many(each.entries, 'entry', 'entries')}, confirmed up to ${each.confirmed}`).join('; ') || 'no generations';
  return `<svg class="line" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="${esc(says)}"><defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="hatch-back" width="6" height="6"/><rect class="hatch-line" width="2.5" height="6"/></pattern></defs>${lanes.join('')}<text class="mark" x="${LEFT}" y="${height - 4}">step 0</text><text class="mark" text-anchor="end" x="${width - 14}" y="${height - 4}">${number(last)}</text></svg>`;
}

function oneTablet(found, width) {
  const newest = found.generations[found.generations.length - 1];
  const decided = found.generations.flatMap((each) => each.decisions.map(([step, decision]) => [number(each.generation), number(step), decision]));
  const losses = found.losses.map((each) => [number(each.generation), each.record.who ?? '–', each.record.when ?? '–', each.record.why ?? '–', each.record.given_up || 'nothing']);
  const said = (title, lines, kind) => (lines.length ? `<ul class="findings">${lines.map((line) => `<li class="finding f-${kind}"><p><strong>${title}</strong> ${esc(line)}</p></li>`).join('')}</ul>` : '');
  return `<h3>Tablet ${number(found.tablet)}${newest ? `, generation ${number(newest.generation)}` : ''}</h3>${said('damaged', found.wrong, 'critical')}${said('unknown', found.unknown, 'warning')}<div class="picture">${generationLines(found.generations, width)}</div>${
    table(`Generations of tablet ${found.tablet}`, ['generation', 'entries', 'first step', 'last step', 'confirmed', 'begins at', 'after', 'snapshots'], found.generations.map((each) => [
      number(each.generation), number(each.entries), number(each.first), number(each.last), number(each.confirmed), each.zero?.snapshot ?? '–', each.zero?.predecessor ?? '–', each.snapshots.join(', ') || '–',
    ]), 'No generation is in the log.')}${decided.length ? table('Tails: what became of entries that were not known to be confirmed', ['generation', 'step', 'decision'], decided) : ''}${
    losses.length ? table('Losses that an operator has accepted', ['generation', 'who', 'when', 'why', 'given up'], losses) : ''}`;
}

const VERDICTS = { sound: 'good', damaged: 'bad', unknown: 'warn' };

function oneGroup(each, width) {
  if (!each.report) return `<section><h2><code>${esc(each.path)}</code></h2><p class="finding f-warning">${esc(each.problem)}</p></section>`;
  const { report } = each;
  const rows = report.members.map((obstacle, at) => [
    number(at), { html: `<code>${esc(each.members[at] ?? '')}</code>` }, { html: obstacle === null ? '<span class="chip s-good">takes part</span>' : '<span class="chip s-bad">takes no part</span>' }, obstacle ?? '',
    report.tablets.map((tablet) => `tablet ${tablet.tablet}: ${tablet.fences[at] === null ? 'none' : number(tablet.fences[at])}`).join(', ') || '–',
  ]);
  return `<section><h2>Group ${esc(report.group)} <span class="chip s-${VERDICTS[report.verdict]}">${esc(report.verdict)}</span></h2><p class="lead"><code>${esc(each.path)}</code>, ${many(rows.length, 'member')}; ${number(each.write)} must have what is stored. Read ${span(Math.max(0, Date.now() / 1000 - each.at))} ago.</p>${
    each.problem ? `<p class="finding f-warning">The last reading failed: ${esc(each.problem)}</p>` : ''}${
    table('Members', ['member', 'where', 'state', 'why not', 'fenced up to generation'], rows)}${report.unknown.map((line) => `<p class="finding f-warning">${esc(line)}</p>`).join('')}${
    report.tablets.map((tablet) => oneTablet(tablet, width)).join('') || '<p class="none">No tablet has written into this group yet.</p>'}</section>`;
}

export function coordinationTable(coordination) {
  if (!coordination) return '<p class="none">The doctor is looking…</p>';
  const rows = coordination.servers.map((each) => [
    each.address, { html: !each.reachable ? chip('down') : `<span class="chip s-${each.mode === 'not serving' ? 'bad' : 'good'}">${esc(each.mode ?? 'answers')}</span>` }, number(each.nodes),
  ]);
  const latency = coordination.latency_s === null || coordination.latency_s === undefined ? '' : `<p class="lead">A read takes ${span(coordination.latency_s)}.</p>`;
  return `${coordination.problem ? `<p class="finding f-critical">${esc(coordination.problem)}</p>` : latency}${table('Servers of coordination', ['server', 'role', 'nodes'], rows, 'no server is named')}`;
}

export const tabletsView = {
  title: 'Tablets',
  mount: (main, state) => {
    main.innerHTML = '<h1>Tablets and coordination</h1><section><h2>Coordination</h2><div data-part="coordination"></div></section><section><h2>Candidates</h2><div data-part="candidates"><p class="none">Asking…</p></div></section><div data-part="groups"></div>';
    state.tablets = null;
    const load = () => ask('tablets').then((found) => { if (state.view === tabletsView) { state.tablets = found; tabletsView.update(main, state); } }).catch((error) => state.fail(error));
    const timer = setInterval(() => { if (!document.hidden) load(); }, ASK_MS);
    state.leave = () => clearInterval(timer);
    load();
  },
  update: (main, state) => {
    const of = (part) => main.querySelector(`[data-part=${part}]`);
    put(of('coordination'), coordinationTable(state.overview?.coordination));
    if (!state.tablets) return;
    const { candidates, groups } = state.tablets;
    const hint = candidates.length || groups.length ? 'The page was told of no candidate: <code>--tablet URL</code> names one.' : 'The page was told of no tablet. <code>replitree ui --tablet URL</code> names a candidate, <code>--tablet DIR</code> the folder of a blob group.';
    put(of('candidates'), candidates.length ? table('Candidates', ['address', 'machine', 'role', 'generation', 'step', 'confirmed', 'snapshot', 'commands', 'members away', 'note'], candidateRows(candidates)) : `<p class="none">${hint}</p>`);
    put(of('groups'), groups.map((each) => oneGroup(each, Math.min(1000, widthOf(of('groups'))))).join(''));
  },
};
