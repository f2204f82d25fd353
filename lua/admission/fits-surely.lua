local parsed = use 'shape/parsed'

-- Whether this many more jobs certainly fit, even if none is a duplicate. identity: 'id:revision' of the shape that the
-- caller knows, '' if it knows none; cost: the highest among them; claimed: whether their places are claimed. Second,
-- whether departures are timed, so that workers may sleep although jobs wait; third, how many jobs are in the wait
-- list, nil if not counted.
local function fits_surely(key, base, identity, jobs, cost, claimed)
  local f = redis.call('HMGET', key, 'digest', 'claimed')
  local shape = parsed.of(key, f[1])
  if not shape then return identity == '' end
  -- A caller that knows another shape has to learn this one.
  if not shape.fits or shape.groups or shape.identity ~= identity or (not claimed and f[2] and f[2] ~= '0') then return false end
  if shape.interval and cost > shape.burst then return false end
  local places, timed = shape.unreserved, (shape.interval or shape.limits) ~= nil
  if not places and not timed then return true, false end
  -- Few queues have any of these: one call replaces three counts.
  local others = redis.call('EXISTS', base .. 'delayed', base .. 'prioritized', base .. 'waiting-children') > 0
  local delayed = others and redis.call('ZCARD', base .. 'delayed') or 0
  -- A delayed job may have to wake a worker that sleeps for its slot.
  if timed and delayed > 0 then return false end
  if claimed or not places then return true, timed end
  local waiting = redis.call('LLEN', base .. 'wait')
  local depth = waiting + delayed
  if others then
    depth = depth + redis.call('ZCARD', base .. 'prioritized') + redis.call('ZCARD', base .. 'waiting-children')
  end
  return depth + jobs <= places, timed, waiting
end

return fits_surely
