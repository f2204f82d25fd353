--[[
  Applies the lease of a shard, its part of a sharded queue's total, and reports the state of the shard. The lease of
  the rate ends by itself, at a time of this Redis's clock; places and running jobs are kept until the next lease.
  KEYS
    [1]  …:meta:shape of the shard
  ARGV
    [1]  epoch of the ledger, '' to report only
    [2]  number of the lease in it: one that arrives late never replaces a later one
    [3]  rate, units per second; '0' for none: the shard holds; 'none' for no limit; '' if the queue has no rate
    [4]  until when the rate holds, ms on this clock
    [5]  capacity, 'none' for no limit, '' to leave it
    [6]  concurrency, as capacity
  Returns {1 if it was applied, the report (sharding/lease), as JSON}; {-1, ''} if the shard has no shape: it has to be
  declared or restored first.
]]
local shapes = use 'shape/shapes'
local lease = use 'sharding/lease'

local key = KEYS[1]
local base, now, shape = shapes.here(key)
if not shape then return { -1, '' } end
local applied = 0
if ARGV[1] ~= '' and lease.is_newer(key, ARGV[1], ARGV[2]) then
  applied = 1
  lease.apply(key, base, now, {
    epoch = ARGV[1], number = ARGV[2], rate = ARGV[3], until_ms = tonumber(ARGV[4]),
    capacity = ARGV[5], concurrency = ARGV[6],
  })
end
return { applied, lease.report(key, base, now) }
