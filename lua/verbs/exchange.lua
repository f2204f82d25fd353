--[[
  Ends jobs of a worker and starts others in their places: BullMQ's moveToFinished for each, under pcall with a reply of its
  own. Each end fetches the next job by itself: without the gate if nothing can hold it (ends/quick-path), if a rate and
  limits let the next jobs go now (gate/quick-gate), or if only groups can hold them (gate/quick-groups).
  KEYS
    [1]  …:meta:shape: the keys of moveToFinished are made here, since fewer are sent and read faster
  ARGV
    [1]  'id:revision' of the shape that the caller knows, '' if none
    [2]  horizon, µs
    [3]  id of this call: the worker's id, a colon and a number
    [4]  how long a grant, or the end of a job that is not kept, is remembered, ms
    [5]  '1' if jobs may leave although no shape is stored
    [6]  departures that nothing held, to be counted now, or -1 (ends/quick-path)
    then six for each job that ended: id, timestamp, result, BullMQ's options, fields to update or '', and its kind, four
    words: completed or failed, field of the result, 1 if the job is not kept, 1 if the next one is wanted
  Returns the reply of gate/departure, with a list as result: for each job BullMQ's code, the text of an error, or
  BullMQ's tuple with the next job, locked with the token of the job that ended; of a job of a group also its score. Only
  the first nine entries if the gate was not needed; three, and no time, if each job that was wanted came.
  The same call sent twice finishes once.
]]
local end_alone = use 'ends/alone'
local end_at_gate = use 'ends/at-gate'
local end_conforming = use 'ends/conforming'
local ends = use 'ends/ends'
local exchanged = use 'ends/exchanged'
local end_in_groups = use 'ends/in-groups'
local job_began = use 'ends/job-began'
local end_open = use 'ends/open'
local quick_answer = use 'ends/quick-answer'
local quick_path = use 'ends/quick-path'
local grants = use 'gate/grants'
local shapes = use 'shape/shapes'

local identity, grant, memo_ms, allows_unshaped, unreported = ARGV[1], ARGV[3], ARGV[4], ARGV[5] == '1', ARGV[6]
local key = KEYS[1]
local base = string.sub(key, 1, -11)
ends.begin(base, ARGV, memo_ms)
if exchanged.wanted == 0 then return end_alone(key) end
local open, stored, holds, grouped = quick_path.open_known(key, identity)
if open and (stored or allows_unshaped) then return end_open(stored, unreported) end
-- What was counted while nothing held the jobs.
if stored and tonumber(unreported) > 0 then quick_answer.note(base, unreported, 0, nil) end
local call = {
  key = key, base = base, identity = identity, wanted = exchanged.wanted, grant = grant, memo_ms = memo_ms,
  horizon = tonumber(ARGV[2]), caller = grants.worker(grant), allows_unshaped = allows_unshaped, holds = holds, ends = true,
  -- When the first of them started, if that is to be recorded.
  began = stored and job_began(base, ARGV[ends.FIRST]),
}
call.shape_id, call.revision = shapes.identity_parts(identity)
local reply, rest = nil, ends.FIRST
if grouped then reply = end_in_groups(call) end
if holds then reply, rest = end_conforming(call) end
return reply or end_at_gate(call, rest)
