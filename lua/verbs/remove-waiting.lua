--[[
  Removes a waiting job, by BullMQ's own script. One that runs or has ended stays: removing a job means that it should
  not run.
  ARGV
    [1]  job id
  Returns 1 removed, 0 there is no such job, -1 it runs, -2 it has ended, -3 it belongs to a scheduler.
]]
local remove_job = use 'bullmq/removeJob'
local group_hooks = use 'groups/hooks'

local base, id = string.sub(KEYS[1], 1, -11), ARGV[1]
if redis.call('EXISTS', base .. id) == 0 then return 0 end
if redis.call('ZSCORE', base .. 'completed', id) or redis.call('ZSCORE', base .. 'failed', id) then return -2 end
if redis.call('LPOS', base .. 'active', id) then return -1 end
local removed = group_hooks.run(remove_job, redis, { base .. id, base .. 'repeat' }, { id, '0', base })
if removed == -8 then return -3 end
return removed == 1 and 1 or -1
