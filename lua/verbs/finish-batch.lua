--[[
  Finishes the jobs that ended in one tick of a worker and starts as many: BullMQ's moveToFinished for each, under pcall
  with a reply of its own. Each call fetches the next job by itself, behind the gate; a rate and limits do not need the
  gate as long as the next jobs conform to them. If nothing holds the jobs, most take lua/verbs/finish-batch-open.lua.
  KEYS
    [1]  wait  [2] active  [3] prioritized  [4] events  [5] stalled  [6] limiter  [7] delayed  [8] paused  [9] meta
    [10] pc  [11] marker  [12] …:meta:shape
  ARGV
    [1]  'id:revision' of the shape that the caller knows, '' if none
    [2]  horizon, µs
    [3]  id of this call: the worker's id, a colon and a number
    [4]  how long a grant is remembered, ms
    [5]  '1' if jobs may leave although no shape is stored
    [6]  key prefix
    then six for each job that ended: id, timestamp, result, BullMQ's options, fields to update or '', and its kind, four
    words: completed or failed, field of the result, 1 if the job is not kept, 1 if the next one is wanted
  Returns the reply of gate/departure, with a list as result: for each job BullMQ's code, the text of an error, or
  BullMQ's tuple with the next job, locked with the token of the job that ended; of a job of a group also its score.
  The same call sent twice finishes once.
]]
local batch_once = use 'ends/batch-once'
local ends = use 'ends/ends'
local fetched_before = use 'ends/fetched-before'
local fetched_size = use 'ends/fetched-size'
local finished = use 'ends/finished'
local job_began = use 'ends/job-began'
local quick_answer = use 'ends/quick-answer'
local quick_path = use 'ends/quick-path'
local relock = use 'ends/relock'
local without_fetch = use 'ends/without-fetch'
local departure = use 'gate/departure'
local grants = use 'gate/grants'
local quick_gate = use 'gate/quick-gate'
local touched = use 'gate/touched'
local wake = use 'gate/wake'
local group_hooks = use 'groups/hooks'
local as_text = use 'redis/as-text'
local shapes = use 'shape/shapes'

local FIRST = 7
local identity, horizon, grant, memo_ms, allow_unshaped = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local shape_key = KEYS[12]
local base = string.sub(shape_key, 1, -11)
ends.begin(KEYS, ARGV[6])
local wanted = ends.wanted(ARGV, FIRST)
local quiet = without_fetch.quiet(base)
local results, found, last, dry = {}, 0, nil, false
-- The jobs whose ends the gate has not seen, since nothing was fetched for them.
local unseen = {}
-- How many ends were to look for a job and did not, since BullMQ's script refused them.
local unasked = 0
-- Whether the grant of this call is remembered, because it was sent before.
local remembered = false

local function move_to_finished(at, fetch, redis)
  local reply = ends.finish(ARGV, at, fetch, redis)
  if reply ~= -2 or not relock(base, ARGV[at], cmsgpack.unpack(ARGV[at + 3]).token) then return reply end
  return ends.finish(ARGV, at, fetch, redis)
end

-- Finishes a job. Returns its result and, if it fetched, BullMQ's reply.
local function finish(at, fetches, redis)
  local id, ended, kind = ARGV[at], ARGV[at + 1], ends.kind(ARGV[at + 5])
  local fetch = fetches and kind.wants and not dry
  local done, reply = pcall(move_to_finished, at, fetch, fetch and redis or quiet)
  if not done then return type(reply) == 'table' and reply.err or tostring(reply) end
  local code, again = finished.code(reply, base, kind.set, id, ended)
  if again then
    local before = kind.wants and not remembered and fetched_before(base, ARGV[at + 3], ended)
    if before then found = found + 1 end
    return before or code
  end
  if code == 0 and kind.discarded then finished.remember(base, id, ended, memo_ms) end
  if code == 0 and not fetch then unseen[#unseen + 1] = id end
  return code, fetch and code == 0 and reply
end

local function finish_all()
  local store_groups
  quiet, store_groups = group_hooks.redis(quiet)
  for at = FIRST, #ARGV, ends.FIELDS do results[#results + 1] = finish(at, false, redis) end
  store_groups()
  without_fetch.frees_place(base, #results)
  return { 1, '', results }
end

-- Fetches the next jobs without the gate as long as that is possible. Returns the reply, or nil and the argument at which
-- the rest begins.
local function finish_quickly(call)
  local quick, at = quick_gate.open(call), FIRST
  while quick and at <= #ARGV do
    local wants = ends.kind(ARGV[at + 5]).wants and not dry
    if wants and not quick_gate.admit(quick) then break end
    local result, reply = finish(at, true, quick.redis)
    if reply then
      last = reply
      if quick_path.fetched(reply) then result, dry = reply, fetched_size.is_enough(reply[1]) else dry = true end
    elseif wants and type(result) ~= 'table' then
      unasked = unasked + 1
    end
    results[#results + 1] = result
    at = at + ends.FIELDS
  end
  if not quick then return nil, FIRST end
  quick_gate.charge(quick)
  if next(touched.bases) then touched.wake() end
  if at <= #ARGV then
    call.now, call.fetched, call.meter, call.limits = quick.now, quick.jobs, quick.meter, quick_gate.limits(quick)
    return nil, at
  end
  quick_gate.save(quick, call)
  -- If no job was looked for, one other than expected was next, or none may start, the worker asks for jobs.
  local answer = last and not quick.displaced and quick_answer.reply(base, results, last, quick.time)
  return answer and answer[5] ~= 'halted' and answer or { 1, as_text.us(quick.now), results }
end

-- The jobs from argument `at` on.
local function finish_at_gate(call, at)
  call.shape_id, call.revision = shapes.identity_parts(identity)
  call.once = batch_once.handlers(base)
  local d = departure.open(call)
  local unshaped = not d.lost and not d.shape and allow_unshaped ~= '1'
  remembered = not d.lost and not unshaped and departure.replay(d)
  local fetches = not (d.lost or unshaped or remembered)
  for at = at, #ARGV, ends.FIELDS do
    -- Each finish may wake other workers, and promotes due jobs, by itself.
    if fetches then d.gate.again = nil end
    local asks = fetches and not dry and ends.kind(ARGV[at + 5]).wants
    local result, reply = finish(at, fetches, fetches and d.gate.redis or redis)
    last = last or reply
    if reply then
      local granted, starts = departure.take(d, reply, cmsgpack.unpack(ARGV[at + 3]).token)
      if starts then result = reply end
      dry = not granted
    else
      if asks and type(result) ~= 'table' then unasked = unasked + 1 end
      -- It may have let its parent in without the gate.
      if fetches and d.gate.order then d.gate.order.forget() end
    end
    results[#results + 1] = result
  end
  if d.lost then return { -1, as_text.us(d.now), results } end
  -- Groups that have places again: no job was fetched after that.
  local freed = false
  for _, id in ipairs(d.gate.groups and unseen or {}) do freed = d.gate.groups:left(id) or freed end
  if d.gate.groups then d.gate.groups:save() end
  if unshaped then d.stop = 'unshaped' end
  if remembered then return departure.reply_again(d, results, found + #d.granted < wanted) end
  if unshaped then return departure.reply(d, results, '') end
  -- If no job was looked for, the worker asks for jobs.
  if found == wanted or not (last or #d.fetched > 0) then
    if next(touched.bases) then touched.wake() end
    if freed then wake.one(base) end
    return { 1, as_text.us(d.now), results }
  end
  local asks = departure.settle(d, wanted - found - #d.fetched - unasked)
  departure.save(d)
  departure.remember(d)
  if freed then wake.one(base) end
  return departure.reply(d, results, asks)
end

if wanted == 0 then return finish_all() end
local _, stored, holds = quick_path.open(shape_key, identity)
local call = {
  key = shape_key, base = base, wanted = wanted, grant = grant, memo_ms = memo_ms, horizon = tonumber(horizon),
  -- When the first of them started, if that is to be recorded.
  began = stored and job_began(base, ARGV[FIRST]), holds = holds, ends = true, caller = grants.worker(grant),
}
local reply, at
if holds then reply, at = finish_quickly(call) end
return reply or finish_at_gate(call, at or FIRST)
