local queue_groups = use 'groups/queue-groups'

-- For BullMQ's changePriority, in a queue with groups: the priority of a job of a group is that within the group. BullMQ's
-- script then puts the job back as one without a priority, and so into the line of its group. A job that does not wait yet,
-- or runs, has it from its next entry on.
-- argv: BullMQ's {priority, key prefix, job id, '1' if it goes before its equals}
-- Returns what group_hooks.redis knows of the queue: since when the job waits does not change.
local function group_priority(argv)
  local priority, base, id = argv[1], argv[2], argv[3]
  local known = { [base] = { redis.call('HGET', base .. 'meta:shape', 'groups') } }
  if not known[base][1] or not queue_groups.of_job(base, id) then return known end
  local options = cjson.decode(redis.call('HGET', base .. id, 'opts'))
  options.group.priority = tonumber(priority)
  redis.call('HSET', base .. id, 'opts', cjson.encode(options))
  argv[1] = '0'
  return known
end

return group_priority
