// Where the bytes of all tables lie: tiers of each replica, and what waits to be removed or moved.
import { ask, put, widthOf } from './dom.js';
import { esc, many, number, size, table } from './text.js';

const RIGHT = 96, LANE = 24, ASK_MS = 20_000, TABLES_MAX = 50;

// Tiers from the fastest to the slowest; the pattern of words is there for those who see no colours.
export const TIERS = [
  { name: 'local', label: 'own disk', says: 'parts whose files lie on the replica\'s disk' },
  { name: 'cache', label: 'copies', says: 'copies of parts of the store on the replica\'s disk; they may go at any time' },
  { name: 'old', label: 'old parts', says: 'parts that have left the table and are kept for readers, tags and consumers' },
  { name: 'detached', label: 'detached', says: 'parts that were taken out and can be attached again' },
  { name: 'frozen', label: 'frozen', says: 'frozen snapshots: hard links, so the bytes may be those of other tiers' },
  { name: 'store', label: 'object store', says: 'parts in the store, which the replicas share: the bytes are there once' },
];

// Bytes of one replica by tier; aside: what it keeps aside of this table, or undefined.
export function tiersOf(replica, aside) {
  // Replicas of an earlier version say nothing of a store.
  return {
    local: replica.bytes === null ? null : Math.max(0, replica.bytes - (replica.store_bytes ?? 0)), cache: replica.cached_bytes, old: replica.old_bytes,
    detached: aside?.detached_bytes ?? null, frozen: aside?.frozen_bytes ?? null, store: replica.store_bytes,
  };
}

// A bar for each replica of each table; all bars have one scale.
export function tierBars(rows, width) {
  const most = Math.max(1, ...rows.map(({ tiers }) => TIERS.reduce((sum, tier) => sum + (tiers[tier.name] ?? 0), 0)));
  // A phone has room for short names only.
  const left = width < 560 ? 84 : 150, scale = Math.max(40, width - left - RIGHT) / most;
  const lanes = rows.map(({ table: name, replica, tiers }, at) => {
    let x = left, sum = 0;
    const pieces = TIERS.map((tier) => {
      const bytes = tiers[tier.name] ?? 0;
      if (!bytes) return '';
      const piece = `<rect class="t-${tier.name}" x="${x.toFixed(1)}" y="${at * LANE + 5}" width="${Math.max(1, bytes * scale).toFixed(1)}" height="14"><title>${esc(`${name} on ${replica}, ${tier.label}: ${size(bytes)}`)}</title></rect>`;
      x += bytes * scale;
      sum += bytes;
      return piece;
    });
    return `<text class="name" x="4" y="${at * LANE + 16}">${esc(`${name} · ${replica}`.slice(0, Math.floor(left / 7.2)))}</text>${pieces.join('')}<text class="mark" x="${(x + 6).toFixed(1)}" y="${at * LANE + 16}">${size(sum)}</text>`;
  });
  const says = rows.map(({ table: name, replica, tiers }) => `${name} on ${replica}: ${TIERS.filter((tier) => tiers[tier.name]).map((tier) => `${tier.label} ${size(tiers[tier.name])}`).join(', ') || 'nothing'}`).join('; ');
  const high = rows.length * LANE + 4;
  return `<svg class="tiers" viewBox="0 0 ${width} ${high}" width="${width}" height="${high}" role="img" aria-label="${esc(says)}">${lanes.join('')}</svg>`;
}

function moving(replica) {
  if (!replica.moving) return '–';
  const { problem, parts_left: parts, bytes_left: bytes, running, waiting } = replica.moving;
  const words = [parts ? `${many(parts, 'part')} (${size(bytes)}) to move` : 'nothing to move'];
  if (running.length) words.push(`${number(running.length)} on the way`);
  if (waiting.length) words.push(`${waiting[0].part} waits after ${many(waiting[0].tries, 'try', 'tries')}: ${waiting[0].reason}`);
  if (problem) words.push(problem);
  return words.join('; ');
}

export function storageRows(tables) {
  return tables.flatMap((each) => each.replicas.map((replica) => [
    each.name, replica.name, number(replica.parts), size(replica.bytes), number(replica.old_parts), size(replica.old_bytes),
    number(replica.leases), size(replica.tagged_bytes), number(replica.packed_parts), number(replica.lacking.length), replica.moving?.storage ?? 'local', moving(replica),
  ]));
}

function tierRows(tables, aside) {
  return tables.flatMap((each) => each.replicas.map((replica) => ({
    table: each.name, replica: replica.name, tiers: tiersOf(replica, aside[each.name] && (aside[each.name].replicas[replica.name] ?? { detached_bytes: 0, frozen_bytes: 0 })),
  })));
}

export const storageView = {
  title: 'Storage',
  mount: (main, state) => {
    main.innerHTML = `<h1>Storage</h1><section><h2>Tiers</h2><div class="picture" data-part="tiers"></div><ul class="legend">${TIERS.map((tier) => `<li><span class="swatch t-${tier.name}" aria-hidden="true"></span>${tier.label} <small>(${esc(tier.says)})</small></li>`).join('')}</ul><div data-part="tier-rows"></div><div data-part="silent"></div></section><section><h2>Parts on each replica</h2><p class="lead">Old parts have left the table; readers, tags and consumers may still need them. Lacking parts are broken or missing on that disk.</p><div data-part="rows"></div></section><section><h2>Disks</h2><div data-part="disks"></div></section>`;
    state.aside = {};
    state.asideNext = 0;
  },
  update: (main, state) => {
    const { tables, servers } = state.overview, of = (part) => main.querySelector(`[data-part=${part}]`);
    const shown = tables.slice(0, TABLES_MAX), rows = tierRows(shown, state.aside);
    const width = widthOf(of('tiers'));
    put(of('tiers'), rows.length ? tierBars(rows, width) : '<p class="none">There are no tables yet.</p>');
    put(of('tier-rows'), table('Bytes by tier', ['table', 'replica', ...TIERS.map((tier) => tier.label)], rows.map((row) => [row.table, row.replica, ...TIERS.map((tier) => size(row.tiers[tier.name]))]), 'no tables yet')
      + (tables.length > TABLES_MAX ? `<p class="none">and ${many(tables.length - TABLES_MAX, 'more table')}</p>` : ''));
    put(of('silent'), Object.entries(state.aside).flatMap(([name, found]) => Object.entries(found.silent).map(([who, why]) => `<p class="finding f-warning">What ${esc(who)} keeps aside of ${esc(name)} is not known: ${esc(why)}</p>`)).join(''));
    put(of('rows'), table(
      'Parts on each replica',
      ['table', 'replica', 'parts', 'size', 'old parts', 'old size', 'leases', 'tagged', 'packed', 'lacking', 'policy', 'to and from the store'],
      storageRows(tables), 'no tables yet',
    ));
    const disks = servers.map((each) => {
      const used = each.disk_bytes ? (100 * (each.disk_bytes - each.disk_free_bytes)) / each.disk_bytes : null;
      const meter = used === null ? '–' : { html: `<meter min="0" max="100" low="80" high="92" optimum="0" value="${used.toFixed(1)}" aria-label="used">${used.toFixed(0)} %</meter> ${used.toFixed(0)} %` };
      return [each.name, meter, size(each.disk_free_bytes), size(each.disk_reserve_bytes)];
    });
    put(of('disks'), table('Disks of the servers', ['server', 'used', 'free', 'reserve'], disks, 'no server answers'));
    if (performance.now() < state.asideNext) return;
    state.asideNext = performance.now() + ASK_MS;
    // One after the other: replicas list folders for an answer.
    (async () => {
      for (const { name } of shown) {
        state.aside[name] = await ask('aside', { table: name });
        if (state.view !== storageView) return;
      }
      storageView.update(main, state);
    })().catch((error) => state.fail(error));
  },
};
