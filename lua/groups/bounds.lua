local group_share = use 'groups/share'

-- Whether groups have bounds of their own, by the defaults or as set for one of these, or might refuse a job for its
-- cost. groups: the defaults (JSON); cost: the highest of the jobs; queue: where a bound follows from what is free, the
-- capacity, nil without one, and the depth with these jobs
local function group_bounds(base, groups, names, cost, now, queue)
  if string.find(groups, '"capacity":', 1, true) then return true end
  local defaults = cjson.decode(groups)
  local is_sure = not queue.capacity or queue.depth <= group_share.sure(group_share.of_free(defaults), queue.capacity)
  if not is_sure then return true end
  local function refuses(given) return given.rate and cost > (given.burst or 1) end
  local settings = base .. 'meta:groups:settings'
  if redis.call('EXISTS', settings) == 0 then return refuses(defaults) end
  -- Lua has room for some thousand.
  for i = 1, #names, 1000 do
    for _, text in ipairs(redis.call('HMGET', settings, unpack(names, i, math.min(#names, i + 999)))) do
      if text and string.find(text, '"capacity":', 1, true) then return true end
      local given = { rate = defaults.rate, burst = defaults.burst }
      for field, entry in pairs(text and cost > 1 and cjson.decode(text).fields or {}) do
        if (field == 'rate' or field == 'burst') and (not entry['until'] or entry['until'] * 1000 > now) then
          given[field] = entry.value ~= cjson.null and entry.value or nil
        end
      end
      if refuses(given) then return true end
    end
  end
  return false
end

return group_bounds
