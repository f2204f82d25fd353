import type { Role } from '../../src/redis/role-commands.ts'
import { ADD, BIND, CANCEL, DECLARE, LIMIT, LOOK, MANAGE, RUN } from './role-scripts.ts'

/** What a role needs. In keys and channels `{prefix}` is the prefix of the queues, `{limits}` that of limits. */
export interface RoleNeeds {
  /** Scripts that it runs, by the names of role-scripts.ts. */
  readonly scripts: readonly string[]
  /** Commands that its clients send themselves, in lower case; `client|setname` is a subcommand. */
  readonly commands: readonly string[]
  /** Patterns of keys as in ACL rules. */
  readonly keys: readonly string[]
  readonly channels: readonly string[]
}

/**
 * ioredis sends INFO to learn whether the server has loaded, names its connection, and sends SELECT if a database is
 * given. It also sends its version (CLIENT SETINFO), unknown to Redis 7.0 even in a rule: denying it has no effect.
 */
const CONNECT = ['info', 'client|setname', 'select', 'ping']
/** Scripts as functions, and as texts while these are not loaded. */
const RUN_SCRIPTS = ['fcall', 'eval', 'evalsha']
/** A user that may load a library may replace one, and so run code with the rights of all that call it: docs/security.md. */
const LOAD_FUNCTIONS = ['function|load', 'function|list', 'function|delete']
/** BullMQ's Queue stores its version and options there, and reads pauses and limits. */
const QUEUE_META = ['hset', 'hget', 'hmget', 'hgetall', 'hexists', 'hdel']
/** `job.waitUntilFinished`, QueueEvents. */
const QUEUE_EVENTS = ['xread']
/** BullMQ's getters that are not scripts: a job, its logs, deduplication, a scheduler. */
const GETTERS = [
  'get',
  'hgetall',
  'lrange',
  'llen',
  'multi',
  'exec',
  'smembers',
  'zrange',
  'zrevrange',
  'zcard',
  'lpos',
]
/** The commands by which src/inspect reads, those of its script included: that one may be sent only so that it writes nothing. */
const INSPECT = [
  ...['eval_ro', 'evalsha_ro'],
  ...['exists', 'hgetall', 'hmget', 'hget', 'llen', 'lrange', 'lindex', 'lpos', 'smembers', 'time'],
  ...[
    'zcard',
    'zcount',
    'zlexcount',
    'zrange',
    'zrangebyscore',
    'zrank',
    'zrevrangebyscore',
    'zscore',
    'xrange',
    'xrevrange',
    'xlen',
  ],
  ...['get', 'pttl', 'scard'],
]
/** By which a producer asks whether replicas have a job (`shape.durability`). */
const CONFIRM = ['set', 'wait']
/** By which a worker finds out which clients take jobs past the meter. Without them it warns, and names none. */
const CLIENTS = ['client|info', 'client|list']
/** What `sluice doctor` asks the server. CONFIG GET is left out: it would reveal the server's passwords. */
const DOCTOR = ['scan', 'type', 'acl|whoami']

const QUEUES = '{prefix}:*'
const LIMITS = '{limits}:limit:*'
const MODES = '{limits}:modes'
/**
 * Of queues that share a limit: what wakes their workers, whose turn it is (`lua/limits/turns.lua`), and whether jobs still have
 * their places.
 */
const TURNS = [
  ...[`~${QUEUES}:meta:sleepers`, `~${QUEUES}:marker`, `~${QUEUES}:meta:lines:due`],
  ...[`%R~${QUEUES}:meta`, `%R~${QUEUES}:lock`],
]
const WAKE = ['{prefix}:*:meta:wake', '{limits}:limit:*:wake']

/** What each role needs; docs/security.md explains what each role is for. */
export const ROLE_NEEDS: Readonly<Record<Role, RoleNeeds>> = {
  producer: {
    scripts: [...ADD, ...DECLARE, ...LOOK],
    commands: [...CONNECT, ...RUN_SCRIPTS, ...CONFIRM, ...QUEUE_META, ...GETTERS, ...QUEUE_EVENTS],
    keys: [`~${QUEUES}`, `~${LIMITS}`],
    channels: WAKE,
  },
  worker: {
    scripts: [...ADD, ...DECLARE, ...LOOK, ...RUN],
    commands: [
      ...[...CONNECT, ...RUN_SCRIPTS, ...CONFIRM, ...QUEUE_META, ...GETTERS, ...QUEUE_EVENTS],
      ...['bzpopmin', 'subscribe', 'unsubscribe', ...CLIENTS],
    ],
    keys: [`~${QUEUES}`, `~${LIMITS}`],
    channels: WAKE,
  },
  gateway: {
    scripts: [...ADD, ...DECLARE, ...LOOK, ...CANCEL, ...BIND, ...LIMIT],
    commands: [
      ...[...CONNECT, ...RUN_SCRIPTS, ...CONFIRM, ...QUEUE_META, ...GETTERS, ...QUEUE_EVENTS],
      ...['subscribe', 'unsubscribe'],
    ],
    keys: [`~${QUEUES}`, `~${LIMITS}`, `%R~${MODES}`],
    channels: WAKE,
  },
  observer: {
    scripts: [],
    commands: [...CONNECT, ...INSPECT],
    keys: [`%R~${QUEUES}`, `%R~${LIMITS}`, `%R~${MODES}`],
    channels: [],
  },
  operator: {
    scripts: [...ADD, ...DECLARE, ...LOOK, ...RUN, ...MANAGE, ...LIMIT],
    commands: [
      ...[...CONNECT, ...RUN_SCRIPTS, ...CONFIRM, ...QUEUE_META, ...GETTERS, ...QUEUE_EVENTS],
      ...[...INSPECT, ...CLIENTS, ...DOCTOR, ...LOAD_FUNCTIONS],
      ...[
        'bzpopmin',
        'subscribe',
        'unsubscribe',
        'publish',
        'del',
        'unlink',
        'hsetnx',
        'hscan',
        'sscan',
        'ltrim',
        'xtrim',
      ],
    ],
    keys: [`~${QUEUES}`, `~${LIMITS}`, `~${MODES}`],
    channels: WAKE,
  },
  limiter: {
    scripts: LIMIT,
    commands: [...CONNECT, ...RUN_SCRIPTS, 'hgetall', 'subscribe', 'unsubscribe'],
    keys: [`~${LIMITS}`, `%R~${MODES}`, ...TURNS],
    channels: WAKE,
  },
}

export const ROLES = Object.keys(ROLE_NEEDS) as Role[]
