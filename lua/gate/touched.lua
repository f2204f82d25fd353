local wake = use 'gate/wake'

--- @call
-- Queues in which jobs came to wait or left, or were delayed, by their key prefixes, where the script does not look by
-- itself whether that wakes a worker: src/redis/bullmq-scripts.ts notes here where BullMQ's scripts release parents. At its
-- end, a script that may have noted one wakes them.
local touched = { bases = {} }

-- Wakes a worker of each such queue whose next job may go, or whose next delayed job is due, sooner than they know.
function touched.wake()
  if next(touched.bases) == nil then return end
  for base in pairs(touched.bases) do
    wake.head_changed(base)
    wake.delayed(base)
  end
  touched.bases = {}
end

return touched
