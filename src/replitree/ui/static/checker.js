// The view of a checker's trace: a file that `replitree ui --trace` names, or one that is chosen or dropped here.
import { ask, put, widthOf } from './dom.js';
import { KINDS, readTrace, stepWords, traceLanes } from './trace.js';
import { esc, many, number, table } from './text.js';

const FILE_BYTES_MAX = 32 * 1024 * 1024;
const of = (main, part) => main.querySelector(`[data-part="${part}"]`);

class TraceView {
  constructor(main, state) {
    this.main = main;
    this.state = state;
    this.results = [];
    this.result = 0;
    this.chosen = 0;
    main.querySelector('input[type=file]').addEventListener('change', (event) => this.open(event.target.files[0]));
    main.addEventListener('dragover', this.over = (event) => event.preventDefault());
    main.addEventListener('drop', this.drop = (event) => { event.preventDefault(); this.open(event.dataTransfer.files[0]); });
    of(main, 'result').addEventListener('change', (event) => { this.result = Number(event.target.value); this.chosen = 0; this.draw(); });
    of(main, 'slider').addEventListener('input', (event) => { this.chosen = Number(event.target.value); this.draw(); });
    of(main, 'lanes').addEventListener('click', (event) => { const step = event.target.closest('[data-at]'); if (step) { this.chosen = Number(step.dataset.at); this.draw(); } });
    main.querySelector('.steps').addEventListener('click', (event) => {
      const by = { first: -Infinity, back: -1, on: 1, last: Infinity }[event.target.closest('button')?.dataset.step];
      if (by !== undefined) { this.chosen += by; this.draw(); }
    });
  }

  // The listeners of the file that is dropped anywhere in the view.
  leave() {
    this.main.removeEventListener('dragover', this.over);
    this.main.removeEventListener('drop', this.drop);
  }

  async open(file) {
    if (!file) return;
    if (file.size > FILE_BYTES_MAX) this.take(file.name, null, `${file.name} has more than ${number(FILE_BYTES_MAX / 1e6)} MB: cut it down to one result`);
    else this.take(file.name, await file.text());
  }

  take(name, text, problem = '') {
    this.results = [];
    try {
      if (text !== null) this.results = readTrace(text);
    } catch (error) {
      problem = `${name}: ${error.message}`;
    }
    this.file = name;
    this.result = Math.max(0, this.results.findIndex((each) => each.steps.length));
    this.chosen = 0;
    put(of(this.main, 'note'), problem ? `<span class="bad">${esc(problem)}</span>` : `<b>${esc(name)}</b>: ${many(this.results.length, 'result')}`);
    this.draw();
  }

  draw() {
    const { main } = this, found = this.results[this.result];
    main.querySelector('[data-part=all]').hidden = !found;
    if (!found) return;
    const last = Math.max(0, found.steps.length - 1);
    this.chosen = Math.min(last, Math.max(0, this.chosen));
    const title = (each) => `${each.name}${each.mutant ? ` with mutant ${each.mutant}` : ''}`;
    of(main, 'choice').hidden = this.results.length < 2;
    put(of(main, 'result'), this.results.map((each, at) => `<option value="${at}">${esc(title(each))}</option>`).join(''));
    of(main, 'result').value = this.result;
    const facts = [found.states === null ? '' : many(found.states, 'state'), many(found.steps.length, 'step'), many(found.actors.length, 'actor')].filter(Boolean).join(', ');
    const wrong = found.violations.map((each) => `<li class="finding f-critical"><p><strong><span aria-hidden="true">✖</span> ${esc(each.invariant)}</strong> ${esc(each.what.replace(`${each.invariant}: `, ''))}</p>${
      each.seed === null ? '' : `<p class="advice">Seed ${number(each.seed)}: <code>replitree verify simulate --seeds ${esc(each.seed)}:${esc(each.seed + 1)}</code> at the same commit repeats it.</p>`}</li>`).join('');
    put(of(main, 'verdict'), `<h2>${esc(title(found))}</h2><p class="lead">${facts}</p>${wrong ? `<ul class="findings">${wrong}</ul>` : '<p class="well"><span aria-hidden="true">✔</span> No invariant is violated.</p>'}`);
    put(of(main, 'lanes'), traceLanes(found, this.chosen, widthOf(of(main, 'lanes'))));
    of(main, 'machine').hidden = !found.steps.length;
    if (found.steps.length) {
      const slider = of(main, 'slider'), step = found.steps[this.chosen];
      slider.max = last;
      slider.value = this.chosen;
      slider.setAttribute('aria-valuetext', `step ${step.at} of ${found.steps.length}, ${step.actor}`);
      const isEnd = this.chosen === last && found.violations.length;
      put(of(main, 'step'), stepWords(step, found.steps.length) + (isEnd ? `<p class="flagged"><span aria-hidden="true">✖</span> Here ${esc(found.violations[0].what)}.</p>` : ''));
      this.#follow();
    }
    put(of(main, 'steps'), table('Steps of the trace', ['step', 'who', 'what', 'outcome'], found.steps.flatMap((step) => step.lines.map((line, at) => [
      at ? '' : step.at, [line.actor, line.doing].filter(Boolean).join(' '), { html: `<code>${esc([line.verb, line.what].filter(Boolean).join(' '))}</code>` }, line.outcome,
    ])), 'no steps'));
    put(of(main, 'end'), found.end.length ? `<h3>The state at the end</h3><pre tabindex="0">${esc(found.end.join('\n'))}</pre>` : '');
  }

  // Scrolls the lanes so that the chosen step is seen.
  #follow() {
    const scroll = of(this.main, 'lanes'), box = scroll.querySelector('.chosen rect');
    if (!box) return;
    const left = Number(box.getAttribute('x')), wide = Number(box.getAttribute('width'));
    if (left < scroll.scrollLeft + 100) scroll.scrollLeft = left - 120;
    else if (left + wide > scroll.scrollLeft + scroll.clientWidth) scroll.scrollLeft = left + wide - scroll.clientWidth + 60;
  }
}

const SKELETON = `<h1>Trace of the checker</h1>
<p class="lead">What <code>replitree verify explore MODEL --mutant NAME --json</code> has written: who did what, in which order, until an invariant did not hold. A file that you choose stays in this browser.</p>
<p class="bar"><label class="button">Choose a file <input type="file" class="hide" accept=".json,.jsonl,.txt"></label> <span>or drop it here.</span></p><p data-part="note" role="status"></p>
<div data-part="all" hidden><p class="bar" data-part="choice"><label>Result <select data-part="result"></select></label></p><div data-part="verdict"></div>
<div class="scroll picture" data-part="lanes" tabindex="0" role="group" aria-label="Steps on lanes"></div><ul class="legend">${KINDS.map((each) => `<li><span class="swatch g-${each.group}" aria-hidden="true"></span>${each.sign} ${esc(each.says)}</li>`).join('')}<li><span class="flag-sign" aria-hidden="true">✖</span> the invariant does not hold</li></ul>
<div data-part="machine" class="machine"><div class="steps"><button type="button" data-step="first" title="To the first step">⇤<span class="hide"> first</span></button><button type="button" data-step="back" title="One step back">◀<span class="hide"> back</span></button><button type="button" data-step="on" title="One step on">▶<span class="hide"> on</span></button><button type="button" data-step="last" title="To the last step">⇥<span class="hide"> last</span></button></div><label class="slider"><span class="hide">Step of the trace</span><input type="range" data-part="slider" min="0" max="0" value="0" step="1"></label><div data-part="step" class="position"></div></div>
<details data-key="steps"><summary>All steps as a table</summary><div data-part="steps"></div></details><div data-part="end"></div></div>`;

export const checkerView = {
  title: 'Trace',
  mount: (main, state) => {
    main.innerHTML = SKELETON;
    state.leave = () => view.leave();
    const view = state.traceView = new TraceView(main, state);
    ask('trace').then((found) => { if (found.name && state.traceView === view) view.take(found.name, found.text); }).catch((error) => state.fail(error));
  },
  update: () => {},
  resize: (_, state) => state.traceView.draw(),
};
