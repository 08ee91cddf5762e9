// What happened to a table, newest first, in words.
import { ask, put } from './dom.js';
import { esc, groupOf, many, number, size, table } from './text.js';

// What the text of some kinds leaves out.
const WORDS = {
  settle: (text) => `the quorum of ${text} is complete`,
  fail: (text) => `${text} is taken back: its quorum was not complete in time`,
  lost: (text) => `part ${text} is empty from here on: no replica has its rows`,
  roll: () => 'the log goes on below a fresh parent',
  storage: (text) => (text.startsWith('keeps') ? text : `rows belong in ${text}`),
  rewrite: (text) => `rewrites ${text || 'nothing'}`,
};

// A merge names its sources: of many only the first and the last one.
function command(each) {
  if (WORDS[each.kind]) return `<span class="command">${esc(WORDS[each.kind](each.command))}</span>`;
  if (each.kind === 'get') return `<span class="command">${esc(each.command || 'inserts')} <small>${esc((each.ids ?? []).join(', '))}</small></span>`;
  const text = each.command || (each.ids ?? []).join(', '), names = text.split(', ');
  if (each.kind !== 'merge' || names.length < 4) return `<span class="command">${esc(text)}</span>`;
  return `<span class="command" title="${esc(text)}">${esc(names[0])} … ${esc(names[names.length - 1])}, ${many(names.length, 'part')}</span>`;
}

const when = (text) => (text ? text.slice(0, 19).replace('T', ' ') : '–');

export function historyRows(entries, kind = '') {
  return entries.filter((each) => !kind || each.kind === kind).map((each) => [
    each.cut ?? number(each.index), { html: `<span class="kind">${when(each.time)}</span>` }, { html: `<span class="kind"><span class="swatch g-${groupOf(each.kind).name}" aria-hidden="true"></span>${esc(each.kind)}</span>` },
    each.replica ?? '', number(each.rows), size(each.bytes), { html: command(each) },
  ]);
}

export const historyView = {
  title: 'History',
  mount: (main, state) => {
    main.innerHTML = `<p class="crumbs"><a href="#/table/${encodeURIComponent(state.name)}">${esc(state.name)}</a> / history</p><h1>History of ${esc(state.name)}</h1><form class="bar" data-part="form"><label>Kind <select name="kind" data-key="kind"><option value="">all</option></select></label><label>Entries <select name="limit"><option>200</option><option>1000</option><option>5000</option></select></label><button type="submit">Load anew</button></form><p data-part="note" role="status">loading…</p><div data-part="rows"></div>`;
    state.history = [];
    const form = main.querySelector('form');
    const load = () => ask('history', { table: state.name, limit: form.limit.value })
      .then((entries) => { state.history = entries; historyView.update(main, state); })
      .catch((error) => state.fail(error));
    form.addEventListener('submit', (event) => { event.preventDefault(); load(); });
    form.limit.addEventListener('change', load);
    form.kind.addEventListener('change', () => historyView.update(main, state));
    load();
  },
  update: (main, state) => {
    const form = main.querySelector('form');
    if (!form || !state.history.length) return;
    const kinds = [...new Set(state.history.map((each) => each.kind))].sort();
    const chosen = form.kind.value;
    if (put(form.kind, `<option value="">all</option>${kinds.map((each) => `<option>${esc(each)}</option>`).join('')}`)) form.kind.value = kinds.includes(chosen) ? chosen : '';
    const rows = historyRows(state.history, form.kind.value);
    put(main.querySelector('[data-part=note]'), `${many(rows.length, 'entry', 'entries')}, the newest first; times are coordination's, in UTC`);
    put(main.querySelector('[data-part=rows]'), table('Entries of the log', ['index', 'time', 'kind', 'replica', 'rows', 'size', 'what it does'], rows));
  },
};
