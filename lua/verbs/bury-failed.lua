--[[
  Moves a failed job into a queue of dead letters, both or neither: BullMQ's add script for the letter, then its
  removeJob. The children of the job stay.
  KEYS
    [1]  …:meta:shape
    then those of addStandardJob, in the queue of dead letters
    [2] [3] [4] [5] [6] [7] [8] [9] [10]
  ARGV
    [1]  job id
    [2]  when it failed, ms since 1970: a job that failed again has another letter
    [3]  name of the queue of dead letters
    then those of addStandardJob
    [4]  its own arguments, packed (key prefix and id of the letter among them)
    [5] [6]
  Returns 1 moved, 0 it has not failed or there is no such job, -2 it belongs to a scheduler.
]]
local add_standard_job = use 'bullmq/addStandardJob'
local remove_job = use 'bullmq/removeJob'
local touched = use 'gate/touched'
local group_hooks = use 'groups/hooks'

local keys, argv = {}, {}
for i = 1, 10 do keys[i] = KEYS[i] end
for i = 1, 6 do argv[i] = ARGV[i] end
local base, id = string.sub(keys[1], 1, -11), argv[1]

local hooked, store_groups = group_hooks.redis(redis)

local failed_at = redis.call('ZSCORE', base .. 'failed', id)
if not failed_at or tonumber(failed_at) ~= tonumber(argv[2]) then return 0 end
for i = 1, 9 do KEYS[i] = keys[1 + i] end
for i = 1, 3 do ARGV[i] = argv[3 + i] end
-- Redis does not roll back, so a partial letter is deleted: it would later look complete.
local added, failure = pcall(add_standard_job.run, redis, KEYS, ARGV)
if not added then
  local letter = cmsgpack.unpack(argv[4])
  redis.call('DEL', letter[1] .. letter[2])
  return type(failure) == 'table' and failure or { err = failure }
end
-- Found by the views, as if a worker had reported it.
redis.call('HINCRBY', base .. 'meta:starts', 'dead:' .. argv[3], 0)
local removed = remove_job.run(hooked, { base .. id, base .. 'repeat' }, { id, '0', base })
touched.note(cmsgpack.unpack(argv[4])[1])
store_groups()
return removed == 1 and 1 or -2
