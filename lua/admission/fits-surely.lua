-- Whether this many more jobs certainly fit: then it does not matter whether some are duplicates. identity: 'id:revision'
-- of the shape that the caller knows, '' if it knows none; cost: the highest among them; claimed: whether their places
-- are claimed. Second, whether departures are timed, so that workers may sleep although jobs wait; third, how many jobs are
-- in the wait list, nil if that was not counted.
local function fits_surely(key, base, identity, jobs, cost, claimed)
  local f = redis.call('HMGET', key, 'born', 'fits', 'claimed')
  if not f[1] then return identity == '' end
  if not f[2] or (not claimed and f[3] and f[3] ~= '0') then return false end
  local known, places, timed, most = string.match(f[2], '^(%S+) (%d*) (t?) (%S*)$')
  -- A caller that knows another shape is to learn this one.
  if known ~= identity or (most ~= '' and cost > tonumber(most)) then return false end
  -- Few queues have any of these: one call replaces three counts.
  local others = redis.call('EXISTS', base .. 'delayed', base .. 'prioritized', base .. 'waiting-children') > 0
  local delayed = others and redis.call('ZCARD', base .. 'delayed') or 0
  -- A delayed job may have to wake a worker that sleeps for its slot.
  if timed ~= '' and delayed > 0 then return false end
  timed = timed ~= ''
  if claimed or places == '' then return true, timed end
  local waiting = redis.call('LLEN', base .. 'wait')
  local depth = waiting + delayed
  if others then
    depth = depth + redis.call('ZCARD', base .. 'prioritized') + redis.call('ZCARD', base .. 'waiting-children')
  end
  return depth + jobs <= tonumber(places), timed, waiting
end

return fits_surely
