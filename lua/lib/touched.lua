-- Queues in which jobs came to wait or left, or were delayed, by their key prefixes, where the script does not look by itself whether that
-- wakes a worker: src/redis/bullmq-scripts.ts notes here where BullMQ's scripts release parents. At its end, a script
-- that may have noted one calls wake_touched.
local touched = {}

-- Wakes a worker of each such queue whose next job may go, or whose next delayed job is due, sooner than they know.
local function wake_touched()
  --- @include "wake" here
  for base in pairs(touched) do
    wake.head_changed(base)
    wake.delayed(base)
  end
  touched = {}
end
