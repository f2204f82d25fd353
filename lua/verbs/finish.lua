--[[
  Finishes a job and, on request, starts the next one, for BullMQ's own code: its moveToFinished, its fetch behind the gate.
  The loop of a ShapedWorker uses lua/verbs/exchange.lua.
  KEYS  those of moveToFinished, of which
    [11]     the set of finished jobs
    then
    [k + 1]  …:meta:shape
  ARGV  those of moveToFinished, of which
    [1]      job id
    [2]      timestamp, ms
    [6]      '1' to fetch the next job
    [8]      BullMQ's options, packed (the lock token among them)
    then
    [a + 1]  'id:revision' of the shape that the caller knows, '' if none
    [a + 2]  '1' if the job is not kept (then its end is remembered instead)
    [a + 3]  how long that or a grant is remembered, ms
    [a + 4]  horizon, µs; 0 for a stock worker, which sleeps by its own timers
    [a + 5]  '1' if the grant is to be remembered: the worker is a ShapedWorker, or the queue has a shape
    [a + 6]  id of this call: the worker's id, a colon and a number
  Returns the reply of gate/departure with BullMQ's code as result: only its first three entries if nothing was to be
  fetched; or BullMQ's own reply, {job fields, id, 0, 0}, if this end fetched a job when it was first sent.
  The same call sent twice finishes once.
]]
local move_to_finished = use 'bullmq/moveToFinished'
local fetched_before = use 'ends/fetched-before'
local finished = use 'ends/finished'
local job_began = use 'ends/job-began'
local quick_answer = use 'ends/quick-answer'
local quick_path = use 'ends/quick-path'
local relock = use 'ends/relock'
local without_fetch = use 'ends/without-fetch'
local departure = use 'gate/departure'
local grants = use 'gate/grants'
local touched = use 'gate/touched'
local group_hooks = use 'groups/hooks'
local as_text = use 'redis/as-text'
local delay_clock = use 'redis/delay-clock'
local shapes = use 'shape/shapes'

local k, a = #KEYS - 1, #ARGV - 6
local base = string.sub(KEYS[k + 1], 1, -11)
local discarded, memo_ms, remembers, grant = ARGV[a + 2] == '1', ARGV[a + 3], ARGV[a + 5] == '1', ARGV[a + 6]

-- Returns BullMQ's reply, its code, and whether this call was sent before.
local function end_job(redis)
  local reply = move_to_finished.run(redis, KEYS, ARGV)
  local missing = reply == -2 and remembers
  if missing and relock(base, ARGV[1], cmsgpack.unpack(ARGV[8]).token) then reply = move_to_finished.run(redis, KEYS, ARGV) end
  local code, again = finished.code(reply, base, KEYS[11], ARGV[1], ARGV[2])
  if discarded and code == 0 and not again then finished.remember(base, ARGV[1], ARGV[2], memo_ms) end
  return reply, code, again
end

local function finish_only()
  local hooked, store_groups = group_hooks.redis(remembers and without_fetch.quiet(base) or redis)
  local _, code = end_job(hooked)
  store_groups()
  if code == 0 then without_fetch.frees_place(base, 1) end
  return { 1, '', code }
end

-- Nothing can hold the next job, as in lua/verbs/exchange.lua.
local function finish_open(stored)
  delay_clock.known[base .. 'delayed'] = stored
  -- When the job that ends started, if that is to be recorded.
  local began = stored and job_began(base, ARGV[1])
  local reply, code, again = end_job(redis)
  touched.wake()
  if code < 0 or again then return again and fetched_before(base, ARGV[8], ARGV[2]) or { 1, '', code } end
  local found = quick_path.fetched(reply)
  local time = quick_answer.note(base, stored and '0' or '-1', found and 1 or 0, began)
  if found then return { reply[1], reply[2], 0, 0 } end
  return quick_answer.reply(base, code, reply, time)
end

local function finish_at_gate()
  local shape_id, revision = shapes.identity_parts(ARGV[a + 1])
  local d = departure.open({
    key = KEYS[k + 1], base = base, shape_id = shape_id, revision = revision, horizon = tonumber(ARGV[a + 4]),
    grant = grant, caller = remembers and grants.worker(grant) or '', memo_ms = memo_ms, ends = true,
  })
  if d.lost then ARGV[6] = '0' end
  if d.shape and d.shape.capacity then d.call.began = job_began(base, ARGV[1]) end
  local reply, code, again = end_job(d.lost and redis or d.gate.redis)
  -- The shape may have been different when the call was first sent.
  local fetched = again and fetched_before(base, ARGV[8], ARGV[2])
  if fetched then return fetched end
  if d.lost then return { -1, as_text.us(d.now), code } end
  -- If no job was looked for, the worker asks for jobs.
  if code < 0 or (again and not departure.replay(d)) then return { 1, as_text.us(d.now), code } end
  if not again then departure.take(d, reply) end
  local asks = departure.settle(d, 1)
  departure.save(d)
  departure.remember(d)
  return departure.reply(d, code, asks)
end

if ARGV[6] ~= '1' then return finish_only() end
local open, stored = quick_path.open_known(KEYS[k + 1], ARGV[a + 1])
return open and finish_open(stored) or finish_at_gate()
