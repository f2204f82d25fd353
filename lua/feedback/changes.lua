local history = use 'reports/history'

-- Changes by feedback: an event of the queue, and a list of its own, because there may be many.
local changes = {}

-- Rounded for readers: intervals do not divide a second evenly.
function changes.rate_text(interval)
  return string.format('%.10g', 1000000 / interval)
end

-- change: as src/feedback/request.ts reads it
function changes.publish(base, change)
  local text = cjson.encode(change)
  redis.call('XADD', base .. 'events', 'MAXLEN', '~', 10000, '*', 'event', 'feedback', 'change', text)
  redis.call('XADD', base .. 'meta:feedback', 'MAXLEN', '~', history.KEPT, '*', 'change', text)
end

return changes
