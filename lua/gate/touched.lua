local wake = use 'gate/wake'
local call_state = use 'redis/call-state'

-- Queues in which jobs came to wait or left, or were delayed, by their key prefixes, where the script does not look by
-- itself whether that wakes a worker: src/redis/bullmq-scripts.ts notes here where BullMQ's scripts release parents. At its
-- end, a script that may have noted one wakes them.
local touched = {}

function touched.note(base)
  call_state.touched = call_state.touched or {}
  call_state.touched[base] = true
end

-- Wakes a worker of each such queue whose next job may go, or whose next delayed job is due, sooner than they know.
function touched.wake()
  if not call_state.touched then return end
  for base in pairs(call_state.touched) do
    wake.head_changed(base)
    wake.delayed(base)
  end
  call_state.touched = false
end

-- After jobs were added to a queue, and its groups, if it has any, are stored.
function touched.by_adds(base, shape, groups)
  if not shape or not (shape.interval or shape.limits or shape.groups) then return end
  -- Most often no worker sleeps.
  if not (groups and groups.awaited) and redis.call('EXISTS', base .. 'meta:sleepers') == 0 then return end
  wake.head_changed(base, groups)
  wake.delayed(base)
end

return touched
