// The page: which view is shown, and what the server tells meanwhile.
import { checkerView } from './checker.js';
import { ask, put } from './dom.js';
import { historyView } from './history.js';
import { overviewView } from './overview.js';
import { save } from './save.js';
import { shardedNames, shardsView } from './shards.js';
import { storageView } from './storage.js';
import { tableView } from './table.js';
import { tabletsView } from './tablets.js';
import { esc } from './text.js';

const LOOKS_MAX = 900, AGAIN_MS = 3000, OLD_S = 10;
const VIEWS = { '': overviewView, table: tableView, history: historyView, shards: shardsView, storage: storageView, tablets: tabletsView, trace: checkerView };

const main = document.getElementById('main');
const problem = document.getElementById('problem');
const state = { overview: null, looks: [], view: null, name: '', failed: '', fail };

function fail(error) {
  state.failed = error.message;
  showProblem();
}

function showProblem() {
  const { problem: told = '', at = null } = state.overview ?? {};
  const text = state.failed || (told && at ? `What is shown was seen at ${clock(at)}. ${told}` : told);
  problem.hidden = !text;
  problem.textContent = text;
}

const clock = (at) => new Date(at * 1000).toLocaleTimeString();

function showNav() {
  const [word = ''] = location.hash.replace(/^#\//, '').split('/');
  const links = [['', 'Overview'], ['storage', 'Storage']];
  if (state.overview && shardedNames(state.overview).length) links.push(['shards', 'Shards']);
  links.push(['tablets', 'Tablets'], ['trace', 'Trace']);
  const names = state.overview?.tables.map((each) => each.name) ?? [];
  put(document.getElementById('nav'), links.map(([to, text]) => `<a href="#/${to}"${to === word ? ' aria-current="page"' : ''}>${text}</a>`).join('')
    + (names.length ? `<label><span class="hide">Table</span><select id="jump" data-key="jump"><option value="">Table…</option>${names.map((name) => `<option${name === state.name ? ' selected' : ''}>${esc(name)}</option>`).join('')}</select></label>` : ''));
}

function route() {
  const [word = '', name = ''] = location.hash.replace(/^#\//, '').split('/');
  state.view = VIEWS[word] ?? overviewView;
  state.name = decodeURIComponent(name);
  state.failed = '';
  state.tableView = null;
  state.leave?.();
  state.leave = null;
  document.title = `${state.name || state.view.title || 'replitree'} · replitree`;
  showProblem();
  showNav();
  state.view.mount(main, state);
  if (state.overview?.at) state.view.update(main, state);
  main.focus({ preventScroll: true });
  window.scrollTo(0, 0);
}

function see(overview) {
  state.overview = overview;
  if (overview.at && !overview.problem) {
    const tables = Object.fromEntries(overview.tables.map((each) => [each.name, {
      tail: each.log_tail, rows: each.rows, parts: each.parts,
      replicas: Object.fromEntries(each.replicas.map((replica) => [replica.name, [replica.mark === 'good' ? replica.state : replica.mark, replica.lag, replica.queue]])),
    }]));
    if (state.looks[state.looks.length - 1]?.at !== overview.at) state.looks.push({ at: overview.at, tables });
    if (state.looks.length > LOOKS_MAX) state.looks.shift();
  }
  showLive('live');
  showProblem();
  showNav();
  if (overview.at) state.view.update(main, state);
}

// How old the overview is, where that is worth a word: a slow cluster is asked rarely.
function age() {
  const seconds = state.overview?.at ? Date.now() / 1000 - state.overview.at : 0;
  return seconds > OLD_S ? `, seen ${Math.round(seconds / 5) * 5} s ago` : '';
}

function showLive(word) {
  const live = document.getElementById('live');
  live.className = `live ${word}`;
  put(live, word === 'live' ? `<span aria-hidden="true">●</span> live${age()}` : `<span aria-hidden="true">○</span> ${word}`);
}

function listen() {
  const events = new EventSource('/api/events');
  events.addEventListener('overview', (event) => see(JSON.parse(event.data)));
  events.addEventListener('error', () => {
    showLive('not connected');
    // EventSource connects again by itself, but not after a refusal.
    if (events.readyState === EventSource.CLOSED) ask('overview').then(() => setTimeout(listen, AGAIN_MS)).catch(fail);
  });
}

const THEMES = ['', 'dark', 'light'];

function showTheme() {
  const chosen = localStorage.getItem('theme') ?? '';
  if (chosen) document.documentElement.dataset.theme = chosen; else delete document.documentElement.dataset.theme;
  document.getElementById('theme').textContent = { '': 'Theme: auto', dark: 'Theme: dark', light: 'Theme: light' }[chosen];
  if (state.overview?.at) state.view?.update(main, state);
}

document.getElementById('theme').addEventListener('click', () => {
  const chosen = localStorage.getItem('theme') ?? '';
  localStorage.setItem('theme', THEMES[(THEMES.indexOf(chosen) + 1) % THEMES.length]);
  showTheme();
});
document.getElementById('save').addEventListener('click', () => save(main, document.title).catch(fail));
document.getElementById('nav').addEventListener('change', (event) => { if (event.target.value) location.hash = `#/table/${encodeURIComponent(event.target.value)}`; });
window.addEventListener('hashchange', route);
let resized = 0;
window.addEventListener('resize', () => {
  cancelAnimationFrame(resized);
  resized = requestAnimationFrame(() => state.overview?.at && (state.view.resize ?? state.view.update)(main, state));
});

setInterval(() => { if (document.getElementById('live').classList[1] === 'live') showLive('live'); }, 5000);
showTheme();
route();
ask('looks').then((looks) => { state.looks = [...looks, ...state.looks.filter((each) => each.at > (looks[looks.length - 1]?.at ?? 0))]; }).catch(fail).finally(listen);
