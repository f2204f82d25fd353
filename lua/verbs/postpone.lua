--[[
  Moves a running job to the delayed ones (a retry with a backoff) and, on request, starts the next one: BullMQ's
  moveToDelayed, its fetch behind the gate.
  KEYS  those of moveToDelayed, of which
    [4]      the delayed set
    then
    [k + 1]  …:meta:shape
  ARGV  those of moveToDelayed, of which
    [3]      job id
    [4]      lock token
    [8]      '1' to fetch the next job
    then
    [a + 1]  'id:revision' of the shape that the caller knows, '' if none
    [a + 2]  how long a grant is remembered, ms
    [a + 3]  horizon, µs; 0 for a stock worker, which sleeps by its own timers
    [a + 4]  '1' if the grant is to be remembered: the worker is a ShapedWorker, or the queue has a shape
    [a + 5]  id of this call: the worker's id, a colon and a number
  Returns the reply of gate/departure, with BullMQ's code as result; {status, '', code} if nothing was to be fetched.
  The same call sent twice postpones once.
]]
local move_to_delayed = use 'bullmq/moveToDelayed'
local relock = use 'ends/relock'
local without_fetch = use 'ends/without-fetch'
local departure = use 'gate/departure'
local grants = use 'gate/grants'
local wake = use 'gate/wake'
local group_hooks = use 'groups/hooks'
local shapes = use 'shape/shapes'

local k, a = #KEYS - 1, #ARGV - 5
local base = string.sub(KEYS[k + 1], 1, -11)
local shape_id, revision = shapes.identity_parts(ARGV[a + 1])
local memo_ms, horizon, remembers, grant = ARGV[a + 2], ARGV[a + 3], ARGV[a + 4], ARGV[a + 5]
local fetch = ARGV[8] == '1'
local d = fetch and departure.open({
  key = KEYS[k + 1], base = base, shape_id = shape_id, revision = revision, horizon = tonumber(horizon), grant = grant,
  caller = remembers == '1' and grants.worker(grant) or '', memo_ms = memo_ms, ends = true,
})
if d and d.lost then fetch, ARGV[8] = false, '0' end

local hooked, store_groups = group_hooks.redis(redis)

local function postpone_job()
  return move_to_delayed.run(fetch and d.gate.redis or hooked, KEYS, ARGV)
end

local function postpone()
  local reply = postpone_job()
  if reply ~= -2 or remembers ~= '1' then return reply end
  return relock(base, ARGV[3], ARGV[4]) and postpone_job() or reply
end

local reply = postpone()
store_groups()
local code = type(reply) == 'table' and 0 or reply
local memory = base .. 'meta:postponed:' .. ARGV[3]
if code < 0 and redis.call('GET', memory) == grant and redis.call('ZSCORE', KEYS[4], ARGV[3]) then
  code = 0
  if fetch then departure.replay(d) end
elseif code == 0 then
  redis.call('SET', memory, grant, 'PX', memo_ms)
  if fetch then
    departure.take(d, reply)
  else
    without_fetch.frees_place(base, 1)
  end
end
if code == 0 then wake.delayed(base) end
if not fetch then return { d and -1 or 1, '', code } end
local asks = departure.settle(d, 1)
departure.save(d)
departure.remember(d)
return departure.reply(d, code, asks)
