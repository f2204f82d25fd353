--[[
  Sets how many shards a sharded queue has, and how many of them take new jobs.
  KEYS
    [1]  …:meta:shape of the whole
  ARGV
    [1]  number of shards: those that take jobs, and those that still have some
    [2]  how many take new jobs
    [3]  how many did before: as long as it differs, the jobs of a group stay where it has some
    [4]  number of shards that the caller knows
  Returns {1, now µs} or, if the number is another one by now, {-3, now µs}.
]]
--- @include "lib/ledger"
local base = string.sub(KEYS[1], 1, -11)
local now = redis_now()
local known, shards = tonumber(ARGV[4]), tonumber(ARGV[1])
local l = ledger.open(base, now, known)
if l.shards ~= known then return { -3, us_text(now) } end
ledger.resize(l, now, shards)
l.placed, l.from = tonumber(ARGV[2]), tonumber(ARGV[3])
ledger.save(base, l)
return { 1, us_text(now) }
