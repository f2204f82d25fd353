--[[
  Finishes a job and, on request, starts the next one: BullMQ's moveToFinished, its fetch behind the gate.
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
    [a + 2]  six words: 1 if the job is not kept (then its end is remembered instead), departures that nothing held and
             that are to be counted now, or -1 (lib/quick), horizon (µs; 0 for a stock worker, which sleeps by its own
             timers), how long a grant is remembered (ms), 1 if it is to be remembered, and the id of this call: the
             worker's id, a colon and a number
  Returns BullMQ's own reply, {job fields, id, 0, 0}, if its script fetched a job by itself, with Redis's time (s, µs)
  instead of the zeros if departures were counted; else the reply of lib/departure with BullMQ's code as result: only
  its first three entries if nothing was to be fetched, its first nine if nothing holds the jobs of the queue.
  The same call sent twice finishes once.
]]
--- @include "lib/delay-clock"
local k, a = #KEYS - 1, #ARGV - 2

local function end_job(redis)
  --- @original
end

local function move_to_finished(redis)
  local reply = end_job(redis)
  if reply ~= -2 then return reply end
  --- @include "lib/relock"
  local again = relock(string.sub(KEYS[k + 1], 1, -11), ARGV[1], cmsgpack.unpack(ARGV[8]).token)
  return again and end_job(redis) or reply
end

--- @include "lib/quick"
local base, call = string.sub(KEYS[k + 1], 1, -11), ARGV[a + 2]
local open, stored, reply
-- When the job that ends started, if that is to be recorded.
local began
if ARGV[6] == '1' then
  open, stored = quick_open(KEYS[k + 1], ARGV[a + 1])
  delay_clock.shaped[base .. 'delayed'] = stored
  if open then
    if stored and string.sub(call, 3, 5) ~= '-1 ' then began = pace.began(base, ARGV[1]) end
    reply = move_to_finished(redis)
    if quick_fetched(reply) and string.sub(call, 1, 5) == '0 -1 ' then return reply end
  end
end

--- @include "lib/finished"
local discarded, told, horizon, memo_ms, remembers, grant =
  string.match(call, '^(%d) (%-?%d+) (%d+) (%d+) (%d) (.*)$')

-- Returns BullMQ's code, and whether this call was sent before.
local function note_end()
  local code, again = finished_code(reply, base, KEYS[11], ARGV[1], ARGV[2])
  if discarded == '1' and code == 0 and not again then finished_remember(base, ARGV[1], ARGV[2], memo_ms) end
  return code, again
end

if ARGV[6] ~= '1' then
  reply = move_to_finished(remembers == '1' and finished_quietly(base) or redis)
  local code = note_end()
  if code == 0 then finished_frees_place(base, 1) end
  return { 1, '', code }
end
local code, again
if open then
  code, again = note_end()
  local fetched = quick_fetched(reply) and reply or again and quick_fetched_before(base, ARGV[8], ARGV[2])
  if fetched and stored and not again then
    local time = quick_note(base, told, 1, began)
    fetched[3], fetched[4] = time[1], time[2]
  end
  if fetched then return fetched end
  if not (again and stored) then
    return quick_answer(base, code, reply, quick_note(base, stored and told or '-1', 0, began))
  end
end

--- @include "lib/departure"
local shape_id, revision = identity_parts(ARGV[a + 1])
local d = departure_open({
  key = KEYS[k + 1], base = base, shape_id = shape_id, revision = revision, horizon = tonumber(horizon), grant = grant,
  caller = remembers == '1' and grants_worker(grant) or '', memo_ms = memo_ms, ends = true,
})
if d.lost then ARGV[6] = '0' end
if not again then
  if d.shape and d.shape.capacity then d.call.began = pace.began(base, ARGV[1]) end
  reply = move_to_finished(d.lost and redis or d.gate.redis)
  code, again = note_end()
  -- The shape may have changed since the first sending.
  local fetched = again and quick_fetched_before(base, ARGV[8], ARGV[2])
  if fetched then return fetched end
end
if d.lost then return { -1, us_text(d.now), code } end
if again then departure_repeat(d) elseif code == 0 then departure_take(d, reply) end
local wake = departure_settle(d, 1)
departure_save(d)
departure_remember(d)
return departure_answer(d, code, wake)
