// The first view: findings, tables, servers.
import { put } from './dom.js';
import { lagLine } from './numberline.js';
import { chip, esc, many, number, size, stateOf, table } from './text.js';

const SIGNS = { critical: '✖', warning: '▲', notice: 'ℹ', ok: '✔' };

// The findings, worst first; those that say that all is well are counted in one line.
export function findings(all, only = null) {
  if (all === null || all === undefined) return '<p class="none">The doctor is looking…</p>';
  const meant = only === null ? all : all.filter((each) => each.table === only || each.table === null);
  const bad = meant.filter((each) => each.severity !== 'ok'), well = meant.length - bad.length;
  const items = bad.map((each) => `<li class="finding f-${esc(each.severity)}"><p><strong><span aria-hidden="true">${SIGNS[each.severity] ?? ''}</span> ${
    esc(each.severity)}</strong> ${esc(each.text)}</p>${each.advice ? `<p class="advice">${esc(each.advice)}</p>` : ''}</li>`);
  const rest = well ? `<p class="well"><span aria-hidden="true">✔</span> ${bad.length ? `${many(well, 'other thing')} looked at: well` : 'The doctor finds nothing wrong.'}</p>` : '';
  return `${items.length ? `<ul class="findings">${items.join('')}</ul>` : ''}${rest}`;
}

function card(each) {
  const lag = Math.max(0, ...each.replicas.map((replica) => replica.lag ?? 0));
  return `<a class="card" href="#/table/${encodeURIComponent(each.name)}"><h3>${esc(each.name)}</h3><dl><div><dt>rows</dt><dd>${number(each.rows)}</dd></div><div><dt>parts</dt><dd>${
    number(each.parts)}</dd></div><div><dt>size</dt><dd>${size(each.bytes)}</dd></div><div><dt>log up to</dt><dd>${number(each.log_tail)}</dd></div><div><dt>lag</dt><dd>${number(lag)}</dd></div></dl>${
    lagLine(each)}<p class="chips">${each.replicas.map((replica) => `<span class="who">${esc(replica.name)} ${chip(stateOf(replica))}</span>`).join(' ')}</p></a>`;
}

function servers(overview) {
  const rows = overview.servers.map((each) => [
    each.name, each.address || '–', { html: chip(each.reachable ? 'active' : 'down') }, each.version ?? '–',
    size(each.disk_free_bytes), size(each.disk_bytes),
  ]);
  return table('Servers', ['server', 'address', 'state', 'version', 'disk free', 'disk'], rows, 'no server has joined yet');
}

export const overviewView = {
  title: 'Overview',
  mount: (main) => {
    main.innerHTML = '<h1>Overview</h1><section aria-labelledby="h-find"><h2 id="h-find">What the doctor finds</h2><div data-part="findings"></div></section><section aria-labelledby="h-tables"><h2 id="h-tables">Tables</h2><div data-part="tables"><p class="none">Asking the cluster…</p></div></section><section aria-labelledby="h-servers"><h2 id="h-servers">Servers</h2><div data-part="servers"></div></section>';
  },
  update: (main, { overview }) => {
    const of = (part) => main.querySelector(`[data-part=${part}]`);
    put(of('findings'), findings(overview.findings));
    const cards = overview.tables.map(card).join('');
    const unreadable = overview.unreadable.map((each) => `<p class="finding f-warning">${esc(each.name)} can't be read: ${esc(each.problem)}</p>`).join('');
    put(of('tables'), `${cards ? `<div class="cards">${cards}</div>` : '<p class="none">There are no tables yet: <code>replitree table create</code> makes one.</p>'}${unreadable}`);
    put(of('servers'), servers(overview));
  },
};
