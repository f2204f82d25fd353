--[[
  Finishes the jobs that ended in one tick of a worker and starts as many: BullMQ's moveToFinished for each, under pcall
  with a reply of its own. Each call fetches the next job by itself, behind the gate if anything holds the jobs of the
  queue. Limits do not need the gate as long as the next jobs conform to them.
  KEYS
    [1]  wait  [2] active  [3] prioritized  [4] events  [5] stalled  [6] limiter  [7] delayed  [8] paused  [9] meta
    [10] pc  [11] marker  [12] …:meta:shape
  ARGV
    [1]  'id:revision' of the shape that the caller knows, '' if none
    [2]  horizon, µs
    [3]  id of this call: the worker's id, a colon and a number
    [4]  how long a grant is remembered, ms
    [5]  '1' if jobs may leave although no shape is stored
    [6]  departures that nothing held and that are to be counted now, or -1 (lib/quick)
    [7]  key prefix
    [8]  timestamp of the fetch, ms
    [9]  '': BullMQ's script has an argument there
    then six for each job that ended: id, timestamp, result, BullMQ's options, fields to update or '', and its kind, four
    words: completed or failed, field of the result, 1 if the job is not kept, 1 if the next one is wanted
  Returns the reply of lib/departure, with a list as result: for each job BullMQ's code, the text of an error, or
  BullMQ's tuple with the next job, locked with the token of the job that ended.
  The same call sent twice finishes once.
]]
--- @include "lib/delay-clock"
--- @include "lib/finished"
--- @include "lib/quick"
local FIELDS, FIRST = 6, 10
-- BullMQ's scripts read KEYS and ARGV: both are prepared for each call of one of them.
local keys, argv = {}, {}
for i = 1, 12 do keys[i] = KEYS[i] end
for i = 1, 9 do argv[i] = ARGV[i] end
local identity, horizon, grant, memo_ms, allow_unshaped, told, prefix = unpack(argv)
local marker, shape_key = keys[11], keys[12]
local base = string.sub(shape_key, 1, -11)
local open, stored, limits = quick_open(shape_key, identity)
delay_clock.shaped[base .. 'delayed'] = stored
if not stored and allow_unshaped ~= '1' then open = false end
KEYS[14] = marker

local function end_job(redis)
  --- @original moveToFinished
end

local function move_to_finished(redis)
  local reply = end_job(redis)
  if reply ~= -2 then return reply end
  --- @include "lib/relock"
  return relock(base, ARGV[1], cmsgpack.unpack(ARGV[8]).token) and end_job(redis) or reply
end

local quiet = finished_quietly(base)

-- Totals over the calls of moveToFinished.
local results, wanted, fetched, found, last, dry, repeated = {}, 0, 0, 0, nil, false, false
-- Whether the grant of this call is remembered, because it was sent before.
local remembered = false

-- Most jobs of a batch are of one kind.
local kinds = {}

local function kind_of(text)
  local target, field, discarded, wants = string.match(text, '^(%a+) (%a+) (%d) (%d)$')
  kinds[text] = {
    target = target, field = field, set = base .. target, metrics = base .. 'metrics:' .. target,
    discarded = discarded == '1', wants = wants == '1',
  }
  return kinds[text]
end

-- Finishes a job. Returns its result and, if it fetched, BullMQ's reply.
local function finish(at, fetches, redis)
  local id, ended = ARGV[at], ARGV[at + 1]
  local kind = kinds[ARGV[at + 5]]
  local fetch = fetches and kind.wants and not dry
  KEYS[11], KEYS[12], KEYS[13] = kind.set, base .. id, kind.metrics
  ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5] = id, ended, kind.field, ARGV[at + 2], kind.target
  ARGV[6], ARGV[7], ARGV[8], ARGV[9] = fetch and '1' or '0', prefix, ARGV[at + 3], ARGV[at + 4]
  local done, reply = pcall(move_to_finished, fetch and redis or quiet)
  if not done then return type(reply) == 'table' and reply.err or tostring(reply) end
  local code, again = finished_code(reply, base, kind.set, id, ended)
  if again then
    repeated = true
    local before = kind.wants and not remembered and quick_fetched_before(base, ARGV[8], ended)
    if before then found = found + 1 end
    return before or code
  end
  if code == 0 and kind.discarded then finished_remember(base, id, ended, memo_ms) end
  return code, fetch and code == 0 and reply
end

for at = FIRST, #ARGV, FIELDS do
  if (kinds[ARGV[at + 5]] or kind_of(ARGV[at + 5])).wants then wanted = wanted + 1 end
end
-- When the first of them started, if that is to be recorded.
local began
if wanted > 0 and stored and (told ~= '-1' or not open) then began = pace.began(base, ARGV[FIRST]) end
if open or wanted == 0 then
  for at = FIRST, #ARGV, FIELDS do
    local result, reply = finish(at, open, redis)
    if reply then
      last = reply
      if quick_fetched(reply) then result, fetched = reply, fetched + 1 else dry = true end
    end
    results[#results + 1] = result
  end
end
if wanted == 0 then
  finished_frees_place(base, #results)
  return { 1, '', results }
end
if open and not repeated then
  -- If every finish failed, no job was looked for.
  local time = quick_note(base, stored and told or '-1', fetched, began)
  return last and quick_answer(base, results, last, time) or { 1, '', results }
end

--- @include "lib/quick-limits"
local quick, at = limits and quick_limits.open(base, limits, wanted, grant), FIRST
while quick and at <= #ARGV do
  local wants = kinds[ARGV[at + 5]].wants and not dry
  if wants and not quick_limits.admit(quick) then break end
  local result, reply = finish(at, true, quick.redis)
  if reply then
    last = reply
    if quick_fetched(reply) then result = reply else dry = true end
  end
  results[#results + 1] = result
  at = at + FIELDS
end
if quick then quick_limits.charge(quick) end
if quick and at > #ARGV then
  quick_limits.save(quick, grant, memo_ms, tonumber(horizon), began)
  -- If no job was looked for, or another one than expected was fetched, the worker asks.
  local known = last and not quick.displaced
  return known and quick_answer(base, results, last, quick.time) or { 1, us_text(quick.now), results }
end

--- @include "lib/departure"
local shape_id, revision = identity_parts(identity)
local d = departure_open({
  key = shape_key, base = base, shape_id = shape_id, revision = revision, horizon = tonumber(horizon), grant = grant,
  caller = grants_worker(grant), memo_ms = memo_ms, ends = true, began = began,
  now = quick and quick.now, fetched = quick and quick.jobs, limits = quick and quick.parts,
})
local unshaped = not d.lost and not d.shape and allow_unshaped ~= '1'
if not open then
  remembered = not d.lost and not unshaped and departure_repeat(d)
  local fetches = not (d.lost or unshaped or remembered)
  for at = at, #ARGV, FIELDS do
    -- Each finish on its own may wake neighbours, and promotes due jobs.
    if fetches then d.gate.again = nil end
    local result, reply = finish(at, fetches, fetches and d.gate.redis or redis)
    if reply and not departure_take(d, reply, cmsgpack.unpack(ARGV[8]).token) then dry = true end
    results[#results + 1] = result
  end
end
if d.lost then return { -1, us_text(d.now), results } end
if unshaped then d.stop = 'unshaped' end
if unshaped or remembered or (open and departure_repeat(d)) then return departure_answer(d, results, '') end
if open or found == wanted then return { 1, us_text(d.now), results } end
local wake = departure_settle(d, wanted - found - #d.fetched)
departure_save(d)
departure_remember(d)
return departure_answer(d, results, wake)
