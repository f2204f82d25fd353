--[[
  Finishes a job and starts the next one if nothing holds it: BullMQ's moveToFinished fetches by itself. If something
  might hold it, if the job's lock is not the caller's, or if this call was sent before, nothing is done and the end is
  left to lua/finish.lua.
  KEYS
    [1]      …:meta:shape: the keys of moveToFinished are made here, since fewer are sent and read faster
  ARGV  those of moveToFinished, of which
    [1]      job id
    [2]      timestamp, ms
    [5]      completed or failed
    then
    [a + 1]  'id:revision' of the shape that the caller knows, '' if none
    [a + 2]  if the job is not kept, how long its end is remembered instead, ms; otherwise ''
    [a + 3]  departures that nothing held, to be counted now, or -1 (lib/quick)
  Returns BullMQ's own reply, {job fields, id, 0, 0}, if its script fetched a job, with Redis's time (s, µs) instead of
  the zeros if departures were counted; else the first nine entries of the reply of lib/departure, or three with BullMQ's
  code for an end that its script refused. For an end that is left: nil if something might hold the next job, 0 if this
  call was sent before, -2 if the lock is not the caller's.
]]
--- @include "lib/began"
--- @include "lib/delay-clock"
--- @include "lib/finished"
--- @include "lib/quick"
local a = #ARGV - 3
local base, unreported = string.sub(KEYS[1], 1, -11), ARGV[a + 3]

local function end_job()
  --- @keys
  --- @original
end

-- For the few ends with more to report: what they include takes as long to set up as several commands.
local function report(reply, began)
  --- @include "lib/quick-answer" here
  if type(reply) == 'number' and reply < 0 then
    local code, again = finished_code(reply, base, base .. ARGV[5], ARGV[1], ARGV[2])
    if again or code == -2 then return code end
    quick_note(base, unreported, 0, nil)
    return { 1, '', code }
  end
  if not quick_fetched(reply) then return quick_answer(base, 0, reply, quick_note(base, unreported, 0, began)) end
  if unreported ~= '-1' then
    local time = quick_note(base, unreported, 1, began)
    reply[3], reply[4] = time[1], time[2]
  end
  return reply
end

local open, stored = quick_open_known(KEYS[1], ARGV[a + 1])
if not open then return false end
delay_clock_known[base .. 'delayed'] = stored
if not stored then unreported = '-1' end
-- When the job that ends started, if that is to be recorded.
local began = unreported ~= '-1' and job_began(base, ARGV[1])
local reply = end_job()
if next(touched) then wake_touched() end
local refused = type(reply) == 'number' and reply < 0
if ARGV[a + 2] ~= '' and not refused then finished_remember(base, ARGV[1], ARGV[2], ARGV[a + 2]) end
if unreported == '-1' and quick_fetched(reply) then return reply end
return report(reply, began)
