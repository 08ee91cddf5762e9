// Where the bytes of all tables lie, and what waits to be removed or moved.
import { put } from './dom.js';
import { number, size, table } from './text.js';

function moving(replica) {
  if (!replica.moving) return '–';
  return Object.entries(replica.moving).filter(([, value]) => value).map(([name, value]) => `${name.replaceAll('_', ' ')} ${value}`).join(', ') || 'nothing';
}

export function storageRows(tables) {
  return tables.flatMap((each) => each.replicas.map((replica) => [
    each.name, replica.name, number(replica.parts), size(replica.bytes), number(replica.old_parts), size(replica.old_bytes),
    number(replica.leases), size(replica.tagged_bytes), number(replica.packed_parts), number(replica.lacking.length), moving(replica),
  ]));
}

export const storageView = {
  title: 'Storage',
  mount: (main) => {
    main.innerHTML = '<h1>Storage</h1><p class="lead">Old parts have left the table; readers, tags and consumers may still need them. Lacking parts are broken or missing on that disk.</p><div data-part="rows"></div><h2>Disks</h2><div data-part="disks"></div>';
  },
  update: (main, { overview }) => {
    put(main.querySelector('[data-part=rows]'), table(
      'Parts on each replica',
      ['table', 'replica', 'parts', 'size', 'old parts', 'old size', 'leases', 'tagged', 'packed', 'lacking', 'to and from the store'],
      storageRows(overview.tables), 'no tables yet',
    ));
    const disks = overview.servers.map((each) => {
      const used = each.disk_bytes ? (100 * (each.disk_bytes - each.disk_free_bytes)) / each.disk_bytes : null;
      const meter = used === null ? '–' : { html: `<meter min="0" max="100" low="80" high="92" optimum="0" value="${used.toFixed(1)}" aria-label="used">${used.toFixed(0)} %</meter> ${used.toFixed(0)} %` };
      return [each.name, meter, size(each.disk_free_bytes), size(each.disk_reserve_bytes)];
    });
    put(main.querySelector('[data-part=disks]'), table('Disks of the servers', ['server', 'used', 'free', 'reserve'], disks, 'no server answers'));
  },
};
