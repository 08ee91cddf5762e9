// Which state each replica was in during the last minutes: a pure function from looks to SVG.
import { esc, span, stateClass } from './text.js';

const LEFT = 64, LANE = 18;

// Runs of equal states of one replica: [[state, from, to], …], times in seconds.
export function runsOf(looks, table, replica) {
  const runs = [];
  for (const look of looks) {
    const state = look.tables[table]?.replicas[replica]?.[0];
    const last = runs[runs.length - 1];
    if (last && last[0] === state) last[2] = look.at;
    else {
      if (last) last[2] = look.at;
      runs.push([state, look.at, look.at]);
    }
  }
  return runs.filter(([state]) => state !== undefined);
}

export function stateStrips(looks, table, width) {
  const replicas = [...new Set(looks.flatMap((look) => Object.keys(look.tables[table]?.replicas ?? {})))].sort();
  if (looks.length < 2 || !replicas.length) return '<p class="none">The page has watched for a moment only.</p>';
  const from = looks[0].at, to = looks[looks.length - 1].at;
  const x = (at) => LEFT + ((width - LEFT - 8) * (at - from)) / Math.max(1, to - from);
  const height = replicas.length * LANE + 22;
  const lanes = replicas.map((name, at) => {
    const y = at * LANE;
    return `<text class="name" x="4" y="${y + 13}">${esc(name.slice(0, 8))}</text>${runsOf(looks, table, name).map(([state, low, high]) => {
      const wide = Math.max(1, x(high) - x(low));
      const label = wide > state.length * 7 + 8 ? `<text class="part" x="${(x(low) + 4).toFixed(1)}" y="${y + 13}">${esc(state)}</text>` : '';
      return `<rect class="s-${stateClass(state)}" x="${x(low).toFixed(1)}" y="${y + 2}" width="${wide.toFixed(1)}" height="14"><title>${esc(`${name} ${state} for ${span(high - low)}`)}</title></rect>${label}`;
    }).join('')}`;
  });
  const says = replicas.map((name) => `${name}: ${runsOf(looks, table, name).map(([state]) => state).join(', then ')}`).join('; ');
  return `<svg class="strips" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="${esc(says)}">${lanes.join('')}<text class="mark" x="${LEFT}" y="${height - 4}">${span(to - from)} ago</text><text class="mark" text-anchor="end" x="${width - 8}" y="${height - 4}">now</text></svg>`;
}
