// One table or shard: its number line, the time machine with the parts at any position, its work, and its replicas.
import * as d3 from './vendor/d3-hierarchy.min.mjs';
import { Curves, lagColumns, rowColumns } from './curves.js';
import { ask, put, widthOf } from './dom.js';
import { TimeMachine } from './fold.js';
import { cursorAt, numberLine, scaleOf } from './numberline.js';
import { findings } from './overview.js';
import { stateStrips } from './strips.js';
import { chip, esc, groupOf, legend, many, number, size, stateOf, table, time } from './text.js';
import { RECTANGLES_MAX, partitionRows, treemap, waitWords } from './treemap.js';

const SKELETON = (name) => `<p class="crumbs"><a href="#/">Overview</a> / ${esc(name)}</p>
<div class="head"><h1>${esc(name)}</h1><p><a class="button" href="#/history/${encodeURIComponent(name)}">History</a></p></div>
<div data-part="findings"></div><dl class="facts" data-part="facts"></dl>
<section aria-labelledby="h-line"><h2 id="h-line">Number line</h2><div class="picture" data-part="line"></div>${legend()}
<div class="machine"><div class="steps"><button type="button" data-step="first" title="To the first position that is known">⇤<span class="hide"> first</span></button><button type="button" data-step="back" title="One entry back">◀<span class="hide"> back</span></button><button type="button" data-step="play" aria-pressed="false">Play</button><button type="button" data-step="on" title="One entry on">▶<span class="hide"> on</span></button><button type="button" data-step="last" title="To the newest entry, and stay there">⇥<span class="hide"> newest</span></button>
<label>Speed <select data-part="speed"><option value="2">2 entries/s</option><option value="10" selected>10 entries/s</option><option value="100">100 entries/s</option><option value="1000">1,000 entries/s</option></select></label></div>
<label class="slider"><span class="hide">Position of the log</span><input type="range" data-part="slider" min="0" max="0" value="0" step="1"></label><p data-part="position" class="position">Reading the log…</p></div><div data-part="quorums"></div></section>
<section aria-labelledby="h-parts"><div class="head"><h2 id="h-parts">Parts at this position</h2><p class="bar"><label>Partition <select data-part="only"><option value="">all</option></select></label><label>Area <select data-part="by"><option value="bytes">bytes</option><option value="rows">rows</option></select></label></p></div>
<div class="picture" data-part="map"></div><ul class="legend levels"><li><span class="swatch l0"></span>level 0, as inserted</li><li><span class="swatch l1"></span>1</li><li><span class="swatch l2"></span>2</li><li><span class="swatch l3"></span>3</li><li><span class="swatch l4"></span>4</li><li><span class="swatch l5"></span>5 merges and more</li><li><span class="swatch mutated l0"></span>dashed edge: changed by a mutation</li></ul>
<details data-key="partitions" data-part="partitions"><summary>The partitions as a table</summary><div data-part="partition-rows"></div></details></section>
<section aria-labelledby="h-work"><h2 id="h-work">At work, and waiting</h2><div data-part="work"></div></section>
<section aria-labelledby="h-replicas"><h2 id="h-replicas">Replicas</h2><div data-part="replicas"></div><h3>States of the last minutes</h3><div class="picture" data-part="strips"></div><div class="charts"><div data-part="lag"></div><div data-part="rows"></div></div></section>`;

const of = (main, part) => main.querySelector(`[data-part="${part}"]`);
const ROWS_SHOWN_MAX = 500, WAITS_SHOWN_MAX = 20, MEASURE_MS = 10_000, READ_MS = 2_000, WAITS_MS = 8_000, WAITS_FIRST_MS = 3_000;
// While the position moves, few rectangles are drawn; all of them when it has rested for so long.
const RECTANGLES_MOVING = 500, REST_MS = 160;
// Entries that are gone over in one frame, so that a long log does not hold up the page.
const ENTRIES_AT_ONCE = 400;

const frame = () => new Promise((done) => { requestAnimationFrame(() => done()); });

class TableView {
  constructor(main, state) {
    this.main = main;
    this.state = state;
    this.name = state.name;
    this.machine = null;
    this.follows = true;
    this.asking = false;
    this.measuring = false;
    this.measureNext = 0;
    this.drawnLine = '';
    this.playing = null;
    this.frame = 0;
    this.resting = 0;
    this.quorums = [];
    this.waits = null;
    // The first moments belong to what the user does.
    this.waitsNext = performance.now() + WAITS_FIRST_MS;
    this.lag = new Curves(of(main, 'lag'), 'Lag in entries', 'lag of each replica over the last minutes; the table of replicas has the numbers of now');
    this.rows = new Curves(of(main, 'rows'), 'Rows', 'rows of the table over the last minutes');
    main.querySelector('.steps').addEventListener('click', (event) => this.step(event.target.closest('button')?.dataset.step));
    of(main, 'slider').addEventListener('input', (event) => this.go(Number(event.target.value)));
    for (const part of ['only', 'by']) of(main, part).addEventListener('change', () => this.drawParts());
    of(main, 'partitions').addEventListener('toggle', () => this.drawRows());
    of(main, 'map').addEventListener('click', (event) => {
      const group = event.target.closest('[data-partition]');
      if (group) { const only = of(main, 'only'); only.value = only.value ? '' : group.dataset.partition; this.drawParts(); }
    });
    // The log is read in coordination, so it is followed although replicas with many parts are asked rarely.
    const timer = setInterval(() => {
      if (state.tableView !== this) clearInterval(timer);
      else if (!document.hidden) this.load();
    }, READ_MS);
    const line = of(main, 'line');
    const drag = (event) => {
      if (!this.machine || !(event.buttons & 1)) return;
      const svg = line.querySelector('svg');
      this.go(scaleOf({ from: this.machine.base, to: this.machine.tail, width: widthOf(line) }).index(event.clientX - svg.getBoundingClientRect().left));
    };
    line.addEventListener('pointerdown', drag);
    line.addEventListener('pointermove', drag);
  }

  get status() {
    return this.state.overview?.tables.find((each) => each.name === this.name);
  }

  // Asks for the entries that this browser does not have.
  async load() {
    if (this.asking) return;
    this.asking = true;
    try {
      const query = { table: this.name };
      if (this.machine) Object.assign(query, { after: this.machine.tail, base: this.machine.base });
      const found = await ask('log', query);
      this.first = found.first;
      if (found.is_whole) {
        const machine = new TimeMachine(found.base);
        machine.append(found.entries);
        while (!machine.seek(machine.tail, ENTRIES_AT_ONCE)) {
          put(of(this.main, 'position'), `Reading the log… ${number(machine.position)} of ${number(machine.tail)}`);
          await frame();
          if (this.state.tableView !== this) return;
        }
        this.machine = machine;
        this.follows = true;
      } else {
        this.machine.append(found.entries);
        if (this.follows) this.machine.seek(this.machine.tail);
      }
      const quorums = JSON.stringify(found.quorums) !== JSON.stringify(this.quorums);
      this.quorums = found.quorums;
      if (found.is_whole || found.entries.length) this.draw(); else if (quorums) this.drawLine();
      if (found.is_whole || this.follows) { this.measure(); this.wait(); }
    } catch (error) {
      this.state.fail(error);
    } finally {
      this.asking = false;
    }
  }

  // The sizes of the parts that are there now; those of merged parts are sums until then.
  async measure() {
    if (this.measuring || !this.machine.isEstimated || performance.now() < this.measureNext) return;
    this.measuring = true;
    try {
      const began = performance.now();
      this.machine.measure(await ask('parts', { table: this.name }));
      this.measureNext = performance.now() + Math.max(MEASURE_MS, 20 * (performance.now() - began));
      this.drawParts();
    } catch (error) {
      this.state.fail(error);
    } finally {
      this.measuring = false;
    }
  }

  // Why parts are not merged yet; known of the newest position only.
  async wait() {
    if (performance.now() < this.waitsNext) return;
    this.waitsNext = performance.now() + WAITS_MS;
    try {
      this.waits = await ask('waits', { table: this.name });
      if (this.state.tableView === this) { this.drawParts(); this.update(); }
    } catch (error) {
      this.state.fail(error);
    }
  }

  step(kind) {
    if (!this.machine || !kind) return;
    const { base, tail, position, entries } = this.machine;
    if (kind === 'play') { if (this.playing === null) this.play(); else this.pause(); return; }
    this.pause();
    const at = this.machine.applied;
    if (kind === 'first') this.go(base);
    if (kind === 'last') this.go(tail);
    if (kind === 'back') this.go(at > 0 ? entries[at - 1].i : base);
    if (kind === 'on') this.go(at < entries.length ? entries[at].i + 1 : position);
  }

  play() {
    if (this.machine.position >= this.machine.tail) this.machine.seek(this.machine.base);
    this.playing = { at: this.machine.applied, since: performance.now() };
    this.follows = false;
    this.showPlay();
    const tick = (now) => {
      if (this.playing === null || this.state.tableView !== this) return;
      const speed = Number(of(this.main, 'speed').value);
      const { entries } = this.machine;
      const at = Math.min(entries.length, this.playing.at + Math.floor(((now - this.playing.since) / 1000) * speed));
      if (at > this.machine.applied) this.go(entries[at - 1].i + 1, true);
      if (at >= entries.length) { this.pause(); return; }
      requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }

  pause() {
    this.playing = null;
    this.showPlay();
  }

  showPlay() {
    const button = this.main.querySelector('[data-step=play]');
    button.textContent = this.playing === null ? 'Play' : 'Pause';
    button.setAttribute('aria-pressed', String(this.playing !== null));
  }

  // Goes to a position; what it looks like is drawn once for each frame.
  go(position, isPlaying = false) {
    if (!this.machine) return;
    if (!isPlaying && this.playing !== null) this.pause();
    this.machine.seek(position);
    this.follows = this.machine.position >= this.machine.tail;
    clearTimeout(this.resting);
    this.resting = setTimeout(() => { this.resting = 0; this.draw(); }, REST_MS);
    if (!this.frame) this.frame = requestAnimationFrame(() => { this.frame = 0; this.draw(); });
  }

  draw() {
    if (this.state.tableView !== this) return;
    this.drawLine();
    this.drawParts();
  }

  drawLine() {
    const { machine, main } = this;
    if (!machine) return;
    const line = of(main, 'line'), replicas = this.status?.replicas ?? [], width = widthOf(line);
    const { quorums } = this;
    const opened = [...new Set([...quorums.map((each) => each.index), ...replicas.flatMap((each) => each.open_inserts)])];
    const where = replicas.map((each) => [each.name, stateOf(each), each.log_pointer, each.index, each.queue]);
    const drawn = JSON.stringify([machine.base, machine.tail, width, opened, quorums, where]);
    if (drawn !== this.drawnLine) {
      // All of it only when the log, a replica or the width has changed: a log has many entries.
      line.innerHTML = numberLine({ entries: machine.entries, from: machine.base, to: machine.tail, replicas, position: machine.position, opened, quorums }, width);
      this.drawnLine = drawn;
      put(of(main, 'quorums'), quorumTable(quorums, replicas, machine.entries));
    }
    line.querySelector('.cursor').setAttribute('transform', cursorAt(machine.position, scaleOf({ from: machine.base, to: machine.tail, width })));
    const slider = of(main, 'slider');
    slider.min = machine.base;
    slider.max = machine.tail;
    slider.value = machine.position;
    const last = machine.applied ? machine.entries[machine.applied - 1] : null;
    const change = machine.applied ? machine.changeAt(machine.applied - 1) : null;
    const did = !last ? 'the beginning' : `after ${esc(last.kind)} <b>${number(last.i)}</b>${last.replica ? ` by ${esc(last.replica)}` : ''}, ${time(last.t)} UTC${last.text && groupOf(last.kind).name !== 'merge' ? `: <code>${esc(last.text)}</code>` : ''}; ${
      change.removed.length || change.added.length ? `${many(change.removed.length, 'part')} left, ${change.added.length} came` : 'no parts changed'}`;
    slider.setAttribute('aria-valuetext', `position ${machine.position} of ${machine.tail}, ${many(machine.parts.length, 'part')}`);
    put(of(main, 'position'), `Position <b>${number(machine.position)}</b> of ${number(machine.tail)}${this.follows ? ' (newest)' : ''}: ${many(machine.parts.length, 'part')}; ${did}.${
      machine.base > 0 ? ` <small>The log begins at ${number(this.first)}; what parts there were is known from ${number(machine.base)} on.</small>` : ''}`);
  }

  drawParts() {
    const { machine, main } = this;
    if (!machine) return;
    const isMoving = this.resting !== 0, only = of(main, 'only'), chosen = only.value;
    const names = machine.parts.names();
    if (!isMoving && put(only, `<option value="">all</option>${names.slice(0, 2000).map((name) => `<option>${esc(name)}</option>`).join('')}`)) only.value = names.includes(chosen) ? chosen : '';
    const map = of(main, 'map'), width = widthOf(map);
    put(map, treemap(machine.parts, { d3, width, height: width < 600 ? 340 : 380, by: of(main, 'by').value, only: only.value || null, most: isMoving ? RECTANGLES_MOVING : RECTANGLES_MAX, waits: this.words }));
    if (!isMoving) this.drawRows();
  }

  drawRows() {
    if (!this.machine || !of(this.main, 'partitions').open) return;
    const rows = partitionRows(this.machine.parts);
    put(of(this.main, 'partition-rows'), table('Partitions at this position', ['partition', 'parts', 'rows', 'size', 'highest level'], rows.slice(0, ROWS_SHOWN_MAX), 'no parts')
      + (rows.length > ROWS_SHOWN_MAX ? `<p class="none">and ${number(rows.length - ROWS_SHOWN_MAX)} more</p>` : ''));
  }

  // Why parts wait, by partition: nothing at earlier positions.
  get words() {
    return this.waits && this.status && this.follows ? waitWords(this.waits, this.status) : {};
  }

  // What comes with each overview.
  update() {
    const { main, status, state } = this;
    if (!status) return;
    put(of(main, 'findings'), findings(state.overview.findings, this.name));
    const fact = (name, value) => `<div><dt>${name}</dt><dd>${value}</dd></div>`;
    put(of(main, 'facts'), [
      fact('rows', number(status.rows)), fact('parts', number(status.parts)), fact('size', size(status.bytes)),
      fact('log', `${number(status.log_first)} to ${number(status.log_tail)}`), fact('columns', number(status.columns)),
      fact('order by', esc(status.order_by.join(', ') || '–')), fact('partition by', esc(status.partition_by.join(', ') || '–')),
    ].join(''));
    put(of(main, 'work'), work(status, this.waits ? waitWords(this.waits, status) : {}));
    put(of(main, 'replicas'), replicaTable(status));
    const strips = of(main, 'strips');
    put(strips, stateStrips(state.looks, this.name, widthOf(strips)));
    if (state.looks.length > 1 && globalThis.uPlot) {
      const width = widthOf(of(main, 'lag'));
      this.lag.show(lagColumns(state.looks, this.name), width);
      this.rows.show(rowColumns(state.looks, this.name), width);
    }
    if (this.machine) this.drawLine(); else this.load();
  }
}

function quorumTable(quorums, replicas, entries) {
  const written = new Map(entries.filter((each) => each.quorum).map((each) => [each.i, each]));
  const rows = quorums.map(({ index, quorum, holders }) => [
    number(index), time(written.get(index)?.t), written.get(index)?.replica ?? '–', `${number(holders.length)} of ${number(quorum)}`, holders.join(', ') || 'none',
    replicas.map((each) => each.name).filter((name) => !holders.includes(name)).join(', ') || 'none',
  ]);
  return rows.length ? table('Inserts whose quorum is open', ['insert', 'since (UTC)', 'writer', 'have its parts', 'these replicas', 'not yet'], rows) : '';
}

function work(status, words) {
  const running = status.replicas.flatMap((replica) => replica.running.map((each) => [
    replica.name, each.kind, number(each.index), each.result,
    { html: `<progress max="${Math.max(1, each.rows_total)}" value="${each.rows_done}" aria-label="${esc(each.result)}"></progress> ${number(each.rows_done)} of ${number(each.rows_total)} rows` },
  ]));
  const waiting = status.replicas.flatMap((replica) => replica.postponed.map((each) => [
    replica.name, number(each.index), number(each.tries), each.reason,
  ]));
  const paused = status.replicas.filter((each) => each.merges_paused).map((each) => each.name);
  return table('Merges and mutations that run', ['replica', 'kind', 'entry', 'result', 'progress'], running, 'No merge and no mutation runs now.')
    + table('Entries that wait', ['replica', 'entry', 'tries', 'why'], waiting, 'No entry waits.')
    + table('Partitions whose parts wait to be merged', ['partition', 'why'], Object.entries(words).slice(0, WAITS_SHOWN_MAX), 'No partition has parts that wait to be merged.')
    + (paused.length ? `<p>Merges are paused on ${esc(paused.join(', '))}.</p>` : '');
}

function replicaTable(status) {
  const rows = status.replicas.map((each) => [
    each.name, { html: `${chip(stateOf(each))}${each.reason && each.state !== 'active' ? ` <small>${esc(each.reason)}</small>` : ''}` },
    number(each.log_pointer), number(each.queue), number(each.lag), number(each.parts), number(each.rows), size(each.bytes),
    each.leader === each.name ? 'leads' : '',
  ]);
  return table('Replicas', ['replica', 'state', 'pointer', 'queue', 'lag', 'parts', 'rows', 'size', 'leader'], rows, 'no replica has joined yet');
}

export const tableView = {
  mount: (main, state) => {
    main.innerHTML = SKELETON(state.name);
    state.tableView = new TableView(main, state);
  },
  update: (_, state) => state.tableView.update(),
  resize: (_, state) => { state.tableView.draw(); state.tableView.update(); },
};
