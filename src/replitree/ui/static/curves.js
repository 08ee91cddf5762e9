// Curves of the last minutes, drawn by uPlot.

const SERIES = ['#2f6fd0', '#b4610a', '#2e7d4f', '#8a4fb5', '#b03050', '#1f7f8c', '#7a6a10', '#5a5f6a'];

// The columns of uPlot: times, and one column for each replica's lag.
export function lagColumns(looks, table) {
  const replicas = [...new Set(looks.flatMap((look) => Object.keys(look.tables[table]?.replicas ?? {})))].sort();
  const lag = (look, name) => look.tables[table]?.replicas[name]?.[1] ?? null;
  return { names: replicas, columns: [looks.map((look) => look.at), ...replicas.map((name) => looks.map((look) => lag(look, name)))] };
}

export function rowColumns(looks, table) {
  return { names: ['rows'], columns: [looks.map((look) => look.at), looks.map((look) => look.tables[table]?.rows ?? null)] };
}

// A chart in an element; `show` gives it new columns.
export class Curves {
  constructor(element, title, label) {
    this.element = element;
    this.title = title;
    this.label = label;
    this.plot = null;
    this.drawn = '';
  }

  show({ names, columns }, width) {
    const ink = getComputedStyle(document.documentElement).getPropertyValue('--ink').trim();
    const grid = getComputedStyle(document.documentElement).getPropertyValue('--edge').trim();
    const made = `${names.join()} ${width} ${ink}`;
    if (this.plot && this.drawn === made) { this.plot.setData(columns); return; }
    this.plot?.destroy();
    this.element.setAttribute('role', 'img');
    this.element.setAttribute('aria-label', this.label);
    const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 } };
    this.plot = new globalThis.uPlot({
      title: this.title,
      width,
      height: 190,
      legend: { show: names.length > 1 },
      cursor: { drag: { x: true, y: false } },
      scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(1, (high ?? 0) * 1.1)] } },
      axes: [axis, { ...axis, size: 64, values: (_, marks) => marks.map((mark) => (mark >= 1e6 ? `${mark / 1e6}M` : mark >= 1e4 ? `${mark / 1e3}k` : `${mark}`)) }],
      series: [{}, ...names.map((label, at) => ({ label, stroke: SERIES[at % SERIES.length], width: 1.5, dash: at % 3 ? [4 * (at % 3), 3] : undefined }))],
    }, columns, this.element);
    this.drawn = made;
  }
}
