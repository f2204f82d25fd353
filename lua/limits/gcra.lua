--- @include "lib/limit-state"
--- @include "lib/bucket"

-- GCRA, the generic cell rate algorithm (ITU-T I.371): one time, at which the bucket will be empty. Times are kept on the
-- grid of lib/bucket and relative to the last change, so that no sum runs ahead of the rate.
--   l.interval  µs per unit of cost, on the grid
--   l.burst     units
limit_factories['gcra'] = function()
  local function open(key, l, now, packed)
    local seen, tat = limit_load(key, '<dd', packed)
    -- A clock that went back: what was a distance in time stays one.
    return { key = key, now = now, tat = seen and math.max(0, tat - math.max(0, now - seen)) or 0 }
  end

  -- More than the burst (it was lowered since) conforms when the bucket is empty.
  local function earliest(s, l, cost)
    return math.max(0, s.tat + bucket_ceil((math.min(cost, l.burst) - l.burst) * l.interval))
  end

  local function charge(s, l, cost, offset)
    s.tat = math.max(s.tat, bucket_ceil(offset)) + bucket_ceil(cost * l.interval)
  end

  local function adjust(s, l, cost)
    s.tat = math.max(0, s.tat + bucket_ceil(cost * l.interval))
  end

  local function save(s)
    limit_store(s.key, s.tat, struct.pack('<dd', s.now, s.tat))
  end

  local function view(s, l)
    return l.burst - s.tat / l.interval, s.now + math.ceil(s.tat)
  end

  return { open = open, earliest = earliest, charge = charge, adjust = adjust, save = save, view = view }
end
