--[[
  Divides the rate, the places and the running jobs of a sharded queue among its shards, by what the shards report.
  The sum of all possible leases never exceeds the total (sharding/ledger).
  KEYS
    [1]  …:meta:shape of the whole queue
  ARGV
    [1]  number of shards that the caller declares
    [2]  time of this call's last answer to the caller, before the reports were taken, µs; '' if there are no reports
    [3]  '1' to divide at once, even right after the last call
    then for each shard, unless there are no reports: its report as JSON (lua/verbs/apply-lease), '' if it did not answer
  Returns {status, now µs, ms until the next call, number of shards, short, grants}. Status: 1 divided,
    0 not due yet, 2 due: report now, -1 no shape, -2 the reports are too old, -3 the queue has another number of shards:
    nothing was changed. short: '1' while a share waits until another shard has confirmed that it has less. A
    grant is '' or {epoch, number, rate, until ms, capacity, concurrency}, as lua/verbs/apply-lease takes them.
]]
local as_text = use 'redis/as-text'
local shapes = use 'shape/shapes'
local ledger = use 'sharding/ledger'

local key = KEYS[1]
local base, now, shape = shapes.here(key)
if not shape then return { -1, as_text.us(now), ledger.PERIOD_MS, 0, '0', {} } end
local l = ledger.open(base, now, tonumber(ARGV[1]))

local function answer(status, in_ms, short, grants)
  return { status, as_text.us(now), in_ms, l.shards, short and '1' or '0', grants or {} }
end

if l.shards ~= tonumber(ARGV[1]) then return answer(-3, 0) end
if #ARGV == 3 then
  local due_ms = math.ceil((l.divided + ledger.OVERDUE_US - now) / 1000)
  if l.fresh then ledger.save(base, l) end
  if due_ms > 0 and l.divided <= now and ARGV[3] ~= '1' then return answer(0, math.min(due_ms, ledger.PERIOD_MS)) end
  return answer(2, 0)
end
local asked = tonumber(ARGV[2])
if asked > now or now - asked > ledger.STALE_US then return answer(-2, 0) end

local reports = {}
for i = 1, l.shards do
  local text = ARGV[3 + i]
  reports[i] = text ~= '' and ledger.report(text) or nil
end
ledger.learn(l, now, reports)
local stored = redis.call('HMGET', key, 'rate', 'declared')
local grants, short = ledger.divide(l, now, {
  rate = stored[1], paced = shapes.document(stored[2]).rate ~= nil, capacity = shape.capacity,
  concurrency = tonumber(shape.concurrency or nil),
}, reports)
l.divided = now
ledger.save(base, l)
return answer(1, short and ledger.wait_ms(l, reports) or ledger.PERIOD_MS, short, grants)
