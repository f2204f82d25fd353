--[[
  Moves a failed job into a queue of dead letters, both or neither: BullMQ's add script for the dead letter, then its
  removeJob. The children of the job stay.
  KEYS
    [1]  …:meta:shape
    [2]  …:meta of the queue of dead letters
  ARGV
    [1]  job id
    [2]  when it failed, ms since 1970: a job that failed again has another dead letter
    [3]  name of the queue of dead letters
    [4]  BullMQ's arguments of addStandardJob for the dead letter: its own, packed
    [5] [6]
  Returns 1 moved, 0 it has not failed or there is no such job, -2 it belongs to a scheduler.
]]
local new_job = use 'admission/new-job'
local add_standard_job = use 'bullmq/addStandardJob'
local remove_job = use 'bullmq/removeJob'
local group_hooks = use 'groups/hooks'

local base, id = string.sub(KEYS[1], 1, -11), ARGV[1]
local failed_at = redis.call('ZSCORE', base .. 'failed', id)
if not failed_at or tonumber(failed_at) ~= tonumber(ARGV[2]) then return 0 end
local failure = new_job.add_whole(add_standard_job, redis, string.sub(KEYS[2], 1, -5), { ARGV[4], ARGV[5], ARGV[6] })
if failure then return failure end
-- Found by the views, as if a worker had reported it.
redis.call('HINCRBY', base .. 'meta:starts', 'dead:' .. ARGV[3], 0)
local removed = group_hooks.run(remove_job, redis, { base .. id, base .. 'repeat' }, { id, '0', base })
return removed == 1 and 1 or -2
