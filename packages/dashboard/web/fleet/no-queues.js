import { h } from '../base/dom.js'

const CODE = `import { ShapedQueue } from 'sluice'

const queue = new ShapedQueue('emails', {
  connection: { host: '127.0.0.1', port: 6379 },
  shape: { rate: '50/s', capacity: 10_000 },
})
await queue.add('welcome', { to: 'ada@example.com' })`

/** Help for a dashboard without queues. */
export function noQueues() {
  return h(
    'section',
    { class: 'card help', hidden: true },
    h('h2', {}, 'No shaped queue yet'),
    h('p', {}, 'A queue appears here as soon as code has declared a shape for it:'),
    h('pre', { tabindex: '0', role: 'region', 'aria-label': 'Example' }, h('code', {}, CODE)),
    h('p', {}, 'If you have queues but none is shown:'),
    h(
      'ul',
      {},
      h('li', {}, 'Is it the same Redis, and the same database number in its address?'),
      h(
        'li',
        {},
        'Is it the same prefix? BullMQ’s default is ',
        h('code', {}, 'bull'),
        '; the dashboard takes another with ',
        h('code', {}, '--prefix'),
        '.',
      ),
      h('li', {}, 'Does it have a shape? Queues of plain BullMQ are not shown.'),
    ),
    h('p', { class: 'muted' }, 'The page looks again every second.'),
  )
}
