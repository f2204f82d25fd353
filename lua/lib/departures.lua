-- How fast jobs leave, by which it is told when places will be free where no rate says so; and all departures: of a queue
-- without a rate here, of one with a rate in its meter (lib/meter).
-- The field `pace` of the meter's hash, seven numbers with spaces between:
--   from, base    since when it is measured, µs (0: not measured), and all departures up to then
--   next, count   from when it will be measured next, and all departures up to then
--   last          the last departure, µs
--   horizon       the horizon of the worker that asked last, µs
--   late          how much later than they meant to do workers ask, µs in the mean: a timer, and the way to Redis
-- One table: a script has no room for more than 200 local names.
local pace = {
  FIELDS = { 'from', 'base', 'next', 'count', 'last', 'horizon', 'late' },
  -- For so long and over so many departures it is measured at least.
  LEAST_US = 1000000, LEAST = 8,
  -- A gap so many times longer than those before it, and longer than this, was an outage.
  OUTAGE = 8, OUTAGE_US = 60000000,
  -- A worker that asks so long after its time was held up by something that says nothing of the next time.
  LATE_US = 1000000,
}

function pace.read(base)
  local text, p, i = redis.call('HGET', base .. 'meta:meter', 'pace'), {}, 0
  for number in string.gmatch(text or '0 0 0 0 0 0 2000', '%S+') do
    i = i + 1
    p[pace.FIELDS[i]] = tonumber(number)
  end
  return p
end

function pace.save(base, p)
  redis.call('HSET', base .. 'meta:meter', 'pace', string.format('%.0f %.0f %.0f %.0f %.0f %.0f %.0f', p.from, p.base,
    p.next, p.count, p.last, p.horizon, p.late))
end

-- Notes departures: total is all of them, with these.
function pace.depart(p, now, total)
  local gap, measured = now - p.last, total - p.base
  local outage = gap > pace.OUTAGE_US and gap * measured > pace.OUTAGE * (p.last - p.from)
  if p.from == 0 or gap < 0 or outage then
    p.from, p.base, p.next, p.count = now, total, now, total
  elseif now - p.next >= pace.LEAST_US and total - p.count >= pace.LEAST then
    p.from, p.base, p.next, p.count = p.next, p.count, now, total
  end
  p.last = now
end

-- How long one of so many running jobs takes, µs in the mean, by Little's law. Nil where it is not known: as long as not each
-- place was given on once, the departures are those by which the places were filled.
function pace.job_us(p, running, total)
  local departed, us = total - p.base, p.last - p.from
  local known = departed >= running or (departed >= pace.LEAST and us >= pace.LEAST_US)
  if p.from == 0 or us <= 0 or not known then return nil end
  return us * running / departed
end

-- Counts departures of a queue without a rate.
local function departures_note(base, count, now)
  local total = redis.call('HINCRBY', base .. 'meta:meter', 'departedTotal', count)
  local p = pace.read(base)
  pace.depart(p, now, total)
  pace.save(base, p)
end
