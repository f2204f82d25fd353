--[[
  Finishes a job and starts the next one if nothing holds it: BullMQ's moveToFinished fetches by itself. If something
  might hold it, if the job's lock is not the caller's, or if this call was sent before, nothing is done and the end is
  left to lua/verbs/finish.lua.
  KEYS
    [1]      …:meta:shape: the keys of moveToFinished are made here, since fewer are sent and read faster
  ARGV  those of moveToFinished, of which
    [1]      job id
    [2]      timestamp, ms
    [5]      completed or failed
    then
    [a + 1]  'id:revision' of the shape that the caller knows, '' if none
    [a + 2]  if the job is not kept, how long its end is remembered instead, ms; otherwise ''
    [a + 3]  departures that nothing held, to be counted now, or -1 (ends/quick-path)
  Returns BullMQ's own reply, {job fields, id, 0, 0}, if its script fetched a job, with Redis's time (s, µs) instead of
  the zeros if departures were counted; else the first nine entries of the reply of gate/departure, or three with BullMQ's
  code for an end that its script refused. For an end that is left: nil if something might hold the next job, 0 if this
  call was sent before, -2 if the lock is not the caller's.
]]
local move_to_finished = use 'bullmq/moveToFinished'
local finished = use 'ends/finished'
local job_began = use 'ends/job-began'
local quick_answer = use 'ends/quick-answer'
local quick_path = use 'ends/quick-path'
local touched = use 'gate/touched'
local delay_clock = use 'redis/delay-clock'

local a = #ARGV - 3
local base, unreported = string.sub(KEYS[1], 1, -11), ARGV[a + 3]

-- For the few ends with more to report.
local function report(reply, began)
  if type(reply) == 'number' and reply < 0 then
    local code, again = finished.code(reply, base, base .. ARGV[5], ARGV[1], ARGV[2])
    if again or code == -2 then return code end
    quick_answer.note(base, unreported, 0, nil)
    return { 1, '', code }
  end
  if not quick_path.fetched(reply) then return quick_answer.reply(base, 0, reply, quick_answer.note(base, unreported, 0, began)) end
  if unreported ~= '-1' then
    local time = quick_answer.note(base, unreported, 1, began)
    reply[3], reply[4] = time[1], time[2]
  end
  return reply
end

local open, stored = quick_path.open_known(KEYS[1], ARGV[a + 1])
if not open then return false end
delay_clock.known[base .. 'delayed'] = stored
if not stored then unreported = '-1' end
-- When the job that ends started, if that is to be recorded.
local began = unreported ~= '-1' and job_began(base, ARGV[1])
local reply = move_to_finished.run(redis, move_to_finished.keys(base, ARGV[1], ARGV[5]), ARGV)
if next(touched.bases) then touched.wake() end
local refused = type(reply) == 'number' and reply < 0
if ARGV[a + 2] ~= '' and not refused then finished.remember(base, ARGV[1], ARGV[2], ARGV[a + 2]) end
if unreported == '-1' and quick_path.fetched(reply) then return reply end
return report(reply, began)
