local history = use 'reports/history'

-- What feedback changes, for people and programs: an event of the queue, and a list of its own, of which there may be much.
local changes = {}

-- Rounded for people: intervals do not divide a second evenly.
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
