// sharding/: one logical queue in several BullMQ queues, each in a slot of its own of a Redis Cluster: where its jobs are
// placed, and how its rate and its places are leased to the shards. It must not know how a queue obeys its shape, or what
// shows queues.
//
// Design. A shard is a ShapedQueue whose declared rate lets next to nothing leave; what it may have of the whole is an
// override that ends by its own Redis's clock (lua/verbs/apply-lease.lua). A ledger in the queue's head (lua/verbs/grant-leases.lua)
// counts for each shard the most that any lease allows which it may obey, and grants more only out of what is counted for
// none; it writes that down before the shard has it. So a coordinator may die, stop, repeat or be overtaken anywhere, a
// message may be late, and no two clocks need to agree:
//   - the end of a lease is the shard's time from before the grant, plus a fixed term. When it arrives does not matter;
//   - shards obey leases in the order of their numbers, and those of the latest epoch;
//   - a lower lease frees what it gives up once the shard has confirmed it and its clock has passed the last slot that
//     was granted before; without a confirmation, once the older lease is certainly over;
//   - what is not known (a lost ledger, a clock that was set, a lease forgotten by a shard) counts as all there is.
// docs/sharding.md says what this keeps exact, and what it does not.

export type { ShardedJob } from './adds.ts'
export { type MoveHold, type MoveOptions, type MoveProgress, type MoveResult, moveShardedQueue } from './move.ts'
export type { ShardedQueueOptions, ShardedState, ShardedWorkerOptions, ShardingOptions } from './options.ts'
export type { PlaceBy } from './placement.ts'
export { ShardedQueue, type ShardedQueueEvents } from './queue.ts'
export { ShardedWorker } from './worker.ts'
