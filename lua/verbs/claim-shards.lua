--[[
  The number of shards of a sharded queue: the first process that declares the queue sets it, and it stays.
  KEYS
    [1]  …:meta:shape of the whole queue
  ARGV
    [1]  number of shards that the caller declares
    [2]  '1' if it declares a shape too: only such a caller sets the number
  Returns the number of shards that is stored; 0 if there is none yet.
]]
local redis_now = use 'redis/redis-now'
local ledger = use 'sharding/ledger'

local base = string.sub(KEYS[1], 1, -11)
local l = ledger.open(base, redis_now(), tonumber(ARGV[1]))
if l.stored then return l.shards end
if ARGV[2] ~= '1' then return 0 end
ledger.save(base, l)
return l.shards
