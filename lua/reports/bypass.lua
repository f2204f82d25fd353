local as_text = use 'redis/as-text'

-- Counts jobs that started without the meter, because some program takes them from the queue directly. The count is in
-- the meter's hash (docs/redis-keys.md).
local bypass = {
  GAP_US = 60000000,
  -- Events to read: SAMPLE until a bypassing job is found, MOST after that.
  SAMPLE = 16, MOST = 600,
  -- If there are more events, a finding counts at most this many times.
  MOST_TIMES = 30,
}

-- Whether a job started without the meter: a metered job has a departure time equal to its start. Jobs that started
-- under another rate, limit, mode or group rule did not need the meter.
function bypass.is_foreign(base, shape, id)
  local job = redis.call('HMGET', base .. id, 'processedOn', 'departure')
  local started = tonumber(job[1] or nil)
  if not started or started * 1000 < math.max(shape.changed_at, shape.rules_at, shape.groups_at) then return false end
  return not job[2] or math.ceil(tonumber(job[2]) / 1000) ~= started
end

-- count: how many to count; jobs found between two reports are added by the next report
function bypass.note(meter_key, now, id, count)
  local f = redis.call('HMGET', meter_key, 'bypassedAt', 'bypassedTotal')
  local gap, total = now - (tonumber(f[1] or nil) or 0), (tonumber(f[2] or nil) or 0) + count
  redis.call('HSET', meter_key, 'bypassedAt', as_text.us(now), 'bypassedJob', id, 'bypassedTotal', as_text.us(total))
  if gap > bypass.GAP_US or gap < 0 then
    redis.call('HSET', meter_key, 'bypassedFrom', as_text.us(now), 'bypassedBase', as_text.us(total))
  end
end

local function ms_of(event)
  return tonumber(string.match(event, '^%d+'))
end

-- Counts, from BullMQ's events, the jobs that started without the meter since the last call. A job that is removed when
-- it ends is counted only while it runs. Returns the id of one job, nil if there are none.
function bypass.count(base, meter_key, shape, now)
  -- Only a rate, limits or groups need the meter: BullMQ's own workers ignore these. They respect concurrency, which is
  -- BullMQ's.
  if shape.mode == 'off' or not (shape.interval or shape.limits or shape.groups) then return nil end
  local f = redis.call('HMGET', meter_key, 'bypassedAt', 'bypassSeen')
  local since = now - (tonumber(f[1] or nil) or 0)
  local most = since >= 0 and since <= bypass.GAP_US and bypass.MOST or bypass.SAMPLE
  local events = redis.call('XREVRANGE', base .. 'events', '+', f[2] and '(' .. f[2] or '-', 'COUNT', most)
  if #events == 0 then return nil end
  redis.call('HSET', meter_key, 'bypassSeen', events[1][1])
  local looked, found, last = {}, 0, nil
  for _, event in ipairs(events) do
    local fields = event[2]
    local id = fields[2] == 'active' and fields[4]
    if id and not looked[id] then
      looked[id] = true
      if bypass.is_foreign(base, shape, id) then found, last = found + 1, last or id end
    end
  end
  if not last then return nil end
  if f[2] and #events == bypass.MOST then
    local newest = ms_of(events[1][1])
    local times = (newest - ms_of(f[2])) / math.max(1, newest - ms_of(events[#events][1]))
    found = math.floor(found * math.max(1, math.min(times, bypass.MOST_TIMES)) + 0.5)
  end
  bypass.note(meter_key, now, last, found)
  return last
end

return bypass
