--[[
  Ends jobs of a worker and starts others in their places, or starts jobs in its free places. An end is BullMQ's
  moveToFinished or moveToDelayed, under pcall with a reply of its own. It fetches the next job directly: without the
  gate if nothing can hold that (ends/quick-path), or if a rate and limits let the next jobs go now, or only groups can
  hold them (ends/ungated).
  KEYS
    [1]  …:meta:shape: the keys of BullMQ's scripts are made here, because fewer are sent and read faster
  ARGV
    [1]  'id:revision' of the shape that the caller knows, '' if none
    [2]  horizon, µs; 0 for BullMQ's own worker, which sleeps by its own timers
    [3]  id of this call (gate/grants)
    [4]  how long a grant, or the end of a job that is not kept, is remembered, ms
    [5]  whether jobs may depart although no shape is stored: '0', '1', or 'plain' for BullMQ's own worker that knows of
         none: then ends are exactly BullMQ's, and requests are not remembered
    [6]  unheld departures to count now, or -1 (ends/quick-path)
    then six for each job that ended: id, timestamp, result, BullMQ's options, fields to update or '', and its kind, four
    words: completed or failed, field of the result, 1 if the job is not kept, 1 if the next one is wanted;
    for a job that is delayed (a retry with a backoff) the delay, ms, as result; if no next one is wanted, its lock token
    as options; as kind: delayed, 1 to count no attempt, 0, 1 if the next one is wanted;
    or, if none ended,
    [7]  the number of free places; 0: only the jobs granted to this call before are wanted
    [8]  timestamp
    [9]  BullMQ's options of moveToActive, including its lock token; '' if that is the id of this call
    [10] name of the worker or '', for those options
    [11] mean time from slot to end of the caller's jobs and mean deviation, 'mean off', µs; '' if unknown
    [12] 'free'
    [13] the longest horizon of a worker that the caller knows of, including its own, µs; used after a loss of state
  Returns the reply of gate/departure. If jobs ended, its result is a list: for each BullMQ's code, the text of an error,
  or BullMQ's tuple with the next job, locked with the token of the job that ended; for a job of a group also its score.
  Only the first nine entries if the gate was not needed; three, and no time, if each wanted job came.
  The same call sent twice finishes once, and starts the same jobs.
]]
local end_at_gate = use 'ends/at-gate'
local ends = use 'ends/ends'
local exchanged = use 'ends/exchanged'
local quick_path = use 'ends/quick-path'
local ungated = use 'ends/ungated'
local departure = use 'gate/departure'
local grants = use 'gate/grants'
local pace = use 'meter/pace'

local key = KEYS[1]
local base = string.sub(key, 1, -11)

-- As gate/departure has it.
local function new_call()
  return {
    key = key, base = base, identity = ARGV[1], horizon = tonumber(ARGV[2]), grant = ARGV[3], caller = grants.worker(ARGV[3]),
    memo_ms = ARGV[4], allows_unshaped = ARGV[5] ~= '0', is_plain = ARGV[5] == 'plain',
  }
end

if ARGV[12] == 'free' then
  local call, options, ran, off = new_call(), ARGV[9], string.match(ARGV[11], '^(%d+) (%d+)$')
  call.longest, call.ran = tonumber(ARGV[13]), ran and { tonumber(ran), tonumber(off) }
  if options == '' then
    call.token = call.grant
    options = cmsgpack.pack({ token = call.grant, lockDuration = tonumber(call.memo_ms), name = ARGV[10] ~= '' and ARGV[10] or nil })
  end
  return departure.start(call, tonumber(ARGV[7]), ARGV[8], options)
end

local unreported = ARGV[6]
local postpones = ends.begin(base, ARGV)
if exchanged.wanted == 0 then return quick_path.end_alone(key) end
local open, stored, holds, grouped = quick_path.open(key, ARGV[1])
-- BullMQ's moveToDelayed does not say why it fetched no job.
if postpones then open, holds, grouped = false, nil, nil end
if open and (stored or ARGV[5] ~= '0') then return quick_path.end_open(stored, unreported) end
-- Counts the departures that nothing held.
if stored and tonumber(unreported) > 0 then quick_path.count(base, unreported, 0, nil) end
local call, reply, rest = new_call(), nil, ends.FIRST
call.wanted, call.holds, call.ends = exchanged.wanted, holds, true
-- When the first of them started, if that has to be recorded: not under a rate without a capacity.
if stored and not (holds and holds.interval and not holds.capacity) then call.began = pace.began(base, ARGV[ends.FIRST]) end
if grouped then reply = ungated.end_in_groups(call, grouped) end
if holds then reply, rest = ungated.end_conforming(call) end
return reply or end_at_gate(call, rest)
