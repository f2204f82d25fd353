--[[
  Fails a job finally and keeps it as a dead letter, both or neither: BullMQ's add script for the dead letter, then its
  moveToFinished. Nothing is fetched.
  KEYS
    [1]  …:meta:shape
    [2]  …:meta of the queue of dead letters
  ARGV
    [1]  job id
    [2]  timestamp, ms
    then the others of moveToFinished
    [3] [4] [5] [6] [7]
    [8]  BullMQ's options, packed (the lock token among them)
    [9]
    then those of addStandardJob for the dead letter
    [10] its own arguments, packed
    [11] [12]
    then
    [13] 1 if the job is not kept (its end is remembered instead)
    [14] how long, ms
  Returns BullMQ's code of moveToFinished. If the job no longer belongs to the caller, no dead letter is added.
  The same call sent twice fails the job once.
]]
local new_job = use 'admission/new-job'
local add_standard_job = use 'bullmq/addStandardJob'
local move_to_finished = use 'bullmq/moveToFinished'
local finished = use 'ends/finished'
local without_fetch = use 'ends/without-fetch'
local group_hooks = use 'groups/hooks'
local call_state = use 'redis/call-state'

local base, id = string.sub(KEYS[1], 1, -11), ARGV[1]

local token = cmsgpack.unpack(ARGV[8]).token
local owned = (token == '0' or redis.call('GET', base .. id .. ':lock') == token)
  and redis.call('LPOS', base .. 'active', id) and redis.call('EXISTS', base .. id) == 1
-- The step that may fail comes first: a job that did not end is fetched again, but a job without its dead letter would
-- be lost.
local failure = owned and new_job.add_whole(add_standard_job, redis, string.sub(KEYS[2], 1, -5), { ARGV[10], ARGV[11], ARGV[12] })
if failure then return failure end
call_state.ended[id] = ARGV[4]
local reply = group_hooks.run(move_to_finished, without_fetch.quiet(base), move_to_finished.keys(base, id, 'failed'), {
  id, ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9],
})
local code, again = finished.code(reply, base, base .. 'failed', id, ARGV[2])
if code == 0 and not again then
  if ARGV[13] == '1' then finished.remember(base, id, ARGV[2], ARGV[14]) end
  without_fetch.frees_place(base, 1)
end
return code
