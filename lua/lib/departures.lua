-- How fast jobs leave, by which it is told when places will be free where no rate says so; and all departures: of a queue
-- without a rate here, of one with a rate in its meter (lib/meter).
-- The field `pace` of the meter's hash, nine numbers with spaces between:
--   from, base    since when it is measured, µs (0: not measured), and all departures up to then
--   next, count   from when it will be measured next, and all departures up to then
--   last          the last departure, µs
--   horizon       the horizon of the worker that asked last, µs
--   late          how much later than they meant to do workers ask, µs in the mean: a timer, and the way to Redis
--   run, off      mean time from the slot of a job to its end, µs (0: not known), and mean deviation from it
-- One table: a script has no room for more than 200 local names.
local pace = {
  FIELDS = { 'from', 'base', 'next', 'count', 'last', 'horizon', 'late', 'run', 'off' },
  -- For so long and over so many departures it is measured at least.
  LEAST_US = 1000000, LEAST = 8,
  -- A gap so many times longer than those before it, and longer than this, was an outage.
  OUTAGE = 8, OUTAGE_US = 60000000,
  -- A worker that asks so long after its time was held up by something that says nothing of the next time.
  LATE_US = 1000000,
  -- What the last one weighs in the means of `run` and `off`: a few of each second's jobs are noted.
  WEIGHT = 1 / 4,
}

function pace.read(base)
  local text, p, i = redis.call('HGET', base .. 'meta:meter', 'pace'), {}, 0
  for number in string.gmatch(text or '0 0 0 0 0 0 2000 0 0', '%S+') do
    i = i + 1
    p[pace.FIELDS[i]] = tonumber(number)
  end
  return p
end

function pace.save(base, p)
  redis.call('HSET', base .. 'meta:meter', 'pace', string.format('%.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f', p.from,
    p.base, p.next, p.count, p.last, p.horizon, p.late, p.run, p.off))
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

-- Notes the time from slot to end of a job, or of several the mean and the mean deviation. One that took far longer than
-- others did says little of the next one: it counts as one at the edge of what is usual (Huber 1964: "Robust Estimation of
-- a Location Parameter"). The first ones are slow.
function pace.ran(p, us, off)
  if us <= 0 then return end
  if p.run == 0 then
    p.run, p.off = us, math.max(off, us / 4)
    return
  end
  local most = math.max(2 * p.off, p.run / 16)
  local by = math.max(-most, math.min(most, us - p.run))
  p.run, p.off = p.run + by * pace.WEIGHT, p.off + (math.min(off, most) + math.abs(by) - p.off) * pace.WEIGHT
end

-- The slot of a running job (µs), or where nothing paces it when it was fetched by the clock of its worker; nil where it
-- is gone.
function pace.began(base, id)
  local ms = tonumber(redis.call('HGET', base .. id, 'processedOn') or nil)
  return ms and ms * 1000
end

-- How long one of so many running jobs takes, µs in the mean, by Little's law. Nil where it is not known: as long as not each
-- place was given on once, the departures are those by which the places were filled.
function pace.job_us(p, running, total)
  local departed, us = total - p.base, p.last - p.from
  local known = departed >= running or (departed >= pace.LEAST and us >= pace.LEAST_US)
  if p.from == 0 or us <= 0 or not known then return nil end
  return us * running / departed
end

-- Counts departures of a queue without a rate. began: of a job that ends now, or nil
local function departures_note(base, count, now, began)
  local total = redis.call('HINCRBY', base .. 'meta:meter', 'departedTotal', count)
  local p = pace.read(base)
  if count > 0 then pace.depart(p, now, total) end
  if began then pace.ran(p, now - began, 0) end
  pace.save(base, p)
end
