local series = {}

-- Time series of a queue, in three lists of samples, newest first, each coarser and longer than the one before:
-- {seconds between samples, number kept}. A sample is a JSON list in the order of src/reports/series-sample.ts.
series.LEVELS = { { 2, 300 }, { 15, 480 }, { 120, 720 } }

function series.key(base, seconds)
  return base .. 'meta:series:' .. seconds
end

-- The lists whose next sample is due.
function series.due(base, now)
  local due = {}
  for _, level in ipairs(series.LEVELS) do
    local newest = redis.call('LINDEX', series.key(base, level[1]), 0)
    local at_us = newest and tonumber(string.match(newest, '^%[(%d+)')) * 1000 or 0
    local period = level[1] * 1000000
    if math.floor(at_us / period) ~= math.floor(now / period) then due[#due + 1] = level end
  end
  return due
end

-- sample: a list of texts and numbers, starting with the time (ms, text)
function series.add(base, level, sample)
  local key = series.key(base, level[1])
  redis.call('LPUSH', key, '[' .. table.concat(sample, ',') .. ']')
  redis.call('LTRIM', key, 0, level[2] - 1)
end

return series
