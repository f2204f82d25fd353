import { setTimeout as sleep } from 'node:timers/promises'
import type { Random } from '../../workers/demo/outbox/random.ts'
import type { Field } from './field.ts'
import { failOver, flushAll } from './losses.ts'

/** One fault of a sequence: what is drawn for it is drawn before it, so that a seed repeats the sequence. */
export interface Fault {
  readonly kind: string
  /** Which of the processes, whatever their number is by then. */
  readonly victim: number
  readonly lastsMs: number
  readonly perSecond: number
  /** How long nothing is done afterwards. */
  readonly restMs: number
}

export function nextFault(random: Random): Fault {
  return {
    kind: random.pick(Object.keys(KINDS)),
    victim: random.between(0, 999),
    lastsMs: random.between(100, 3000),
    perSecond: random.between(50, 300),
    restMs: random.between(50, 600),
  }
}

/** Makes it happen; resolves when it is over. */
export async function inject(fault: Fault, field: Field): Promise<void> {
  await KINDS[fault.kind]?.(field, fault)
}

async function freeze(pid: number, lastsMs: number): Promise<void> {
  process.kill(pid, 'SIGSTOP')
  await sleep(lastsMs)
  process.kill(pid, 'SIGCONT')
}

const KINDS: Readonly<Record<string, (field: Field, fault: Fault) => Promise<unknown>>> = {
  'worker killed': (field, { victim }) => field.workers.replace(victim, 'SIGKILL'),
  'worker stopped': (field, { victim, lastsMs }) => freeze(field.workers.pidOf(victim), lastsMs),
  'producer killed': (field, { victim }) => field.producers.replace(victim, 'SIGKILL'),
  'producer stopped': (field, { victim, lastsMs }) => freeze(field.producers.pidOf(victim), lastsMs),
  'Redis killed': async ({ service }, { lastsMs }) => {
    await service.kill()
    await sleep(lastsMs / 3)
    await service.restart()
  },
  'Redis emptied': (field, { perSecond }) => flushAll(field, perSecond),
  'stale replica promoted': (field, { lastsMs, perSecond }) => failOver(field, lastsMs / 3, perSecond),
  'Redis stopped': ({ service }, { lastsMs }) => freeze(service.pid as number, lastsMs),
  'connections cut': async ({ proxy }) => proxy.cut(),
  'connections silent': async ({ proxy }, { lastsMs }) => {
    proxy.blackhole()
    await sleep(lastsMs)
    proxy.restore()
  },
  'connections slow': async ({ proxy }, { lastsMs }) => {
    proxy.latency(lastsMs / 15)
    await sleep(lastsMs)
    proxy.latency(0)
  },
  'scripts forgotten': ({ admin }) => admin.script('FLUSH'),
  'clients killed': ({ admin }) => admin.call('CLIENT', 'KILL', 'TYPE', 'normal'),
  'rate changed': (field, { perSecond }) => field.setRate(perSecond),
  paused: (field, { lastsMs }) => field.pause(lastsMs),
  'workers deployed': (field) => field.workers.deploy(),
}
