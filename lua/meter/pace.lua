-- Measures how fast jobs depart, to estimate when places become free if no rate determines it. Also counts all
-- departures: those of a queue without a rate here, those of one with a rate in its meter (meter/meter). The field
-- `pace` of the meter's hash, nine doubles:
--   from, base    start of the measurement, µs (0: not measured), and all departures up to then
--   next, count   start of the next measurement, and all departures up to then
--   last          the last departure, µs
--   horizon       the horizon of the worker that asked last, µs
--   late          mean delay with which workers ask, µs: their timers, and the way to Redis
--   run, off      mean time from the slot of a job to its end, µs (0: unknown), and mean deviation from it
local pace = {
  FORMAT = '<ddddddddd',
  -- Minimum duration and number of departures of a measurement.
  LEAST_US = 1000000, LEAST = 8,
  -- A gap this many times longer than the mean before it, and longer than OUTAGE_US, was an outage.
  OUTAGE = 8, OUTAGE_US = 60000000,
  -- The cause of a delay of this length or more does not predict the next one.
  LATE_US = 1000000,
  -- Weight of the last sample in the means of `run` and `off`: only a few of each second's jobs are recorded.
  WEIGHT = 1 / 4,
}

-- The slot of a running job (µs) or, if nothing paces it, when it was fetched by its worker's clock; nil if the job is
-- gone.
function pace.began(base, id)
  local ms = tonumber(redis.call('HGET', base .. id, 'processedOn') or nil)
  return ms and ms * 1000
end

-- packed: the field, or false
function pace.of(packed)
  local p = { from = 0, base = 0, next = 0, count = 0, last = 0, horizon = 0, late = 2000, run = 0, off = 0 }
  if packed then
    p.from, p.base, p.next, p.count, p.last, p.horizon, p.late, p.run, p.off = struct.unpack(pace.FORMAT, packed)
  end
  return p
end

function pace.packed(p)
  return struct.pack(pace.FORMAT, p.from, p.base, p.next, p.count, p.last, p.horizon, p.late, p.run, p.off)
end

function pace.read(base)
  return pace.of(redis.call('HGET', base .. 'meta:meter', 'pace'))
end

-- Records departures: total counts all of them, including these.
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

-- Records the time from slot to end of a job, or the mean and mean deviation of several. An outlier says little about
-- the next job: it is clipped to the edge of the usual range (Huber 1964: "Robust Estimation of a Location Parameter").
-- The first jobs of a process are slow: a wide initial deviation lets the mean recover soon.
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

-- Records departures and the end of a job. packed: the old field; total: as for pace.depart; began: start of a job that
-- ends now, or nil. Returns the new field.
function pace.noted(packed, count, now, total, began)
  local p = pace.of(packed)
  if count > 0 then pace.depart(p, now, total) end
  if began then pace.ran(p, now - began, 0) end
  return pace.packed(p)
end

-- Counts departures. Returns the total, including these.
function pace.total(base, count)
  return redis.call('HINCRBY', base .. 'meta:meter', 'departedTotal', count)
end

-- The same for a queue without a rate.
function pace.count(base, count, now, began)
  local key, total = base .. 'meta:meter', pace.total(base, count)
  redis.call('HSET', key, 'pace', pace.noted(redis.call('HGET', key, 'pace'), count, now, total, began))
end

return pace
