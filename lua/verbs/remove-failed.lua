--[[
  Removes a failed job and its children, by BullMQ's own script.
  ARGV
    [1]  job id
  Returns 1 removed, 0 it has not failed or there is no such job, -1 a child of it runs, -2 it belongs to a scheduler.
]]
local remove_job = use 'bullmq/removeJob'
local group_hooks = use 'groups/hooks'

local base, id = string.sub(KEYS[1], 1, -11), ARGV[1]
if not redis.call('ZSCORE', base .. 'failed', id) then return 0 end
local removed = group_hooks.run(remove_job, redis, { base .. id, base .. 'repeat' }, { id, '1', base })
if removed == -8 then return -2 end
return removed == 1 and 1 or -1
