local parsed = use 'shape/parsed'

-- If no rate and no pause holds the next job, and it is the one that BullMQ has next, its script fetches it by itself.
-- That is determined before other modules are made, whose functions alone would cost more than BullMQ's work.

local quick_path = {}

-- Whether every job may leave now, for a caller that knows this shape; second, whether a shape is stored; third, if
-- only an enforced rate, whose meter is in use, and limits may hold them, the shape (shape/parsed); fourth, the shape if only
-- groups may.
function quick_path.open(key, identity)
  local shape = parsed.of(key, redis.call('HGET', key, 'digest'))
  if not shape then return identity == '', false end
  if shape.probe or shape.identity ~= identity or shape.own_concurrency or shape.ageing_ms then return false, true end
  if shape.paused_until > 0 or shape.expires then
    local now_ms = redis.call('TIME')[1] * 1000
    local ends = shape.expires and shape.expires <= now_ms + 1000
    if ends or shape.paused_until / 1000 > now_ms then return false, true end
  end
  local held = shape.interval or shape.limits
  if not held and not shape.groups then return true, true end
  -- Audited departures go through the gate.
  if shape.mode ~= 'enforce' or shape.audit then return false, true end
  if shape.groups then return false, true, nil, not (held or shape.group_limits) and shape or nil end
  return false, true, (not shape.interval or shape.metered) and shape or nil
end

function quick_path.fetched(reply)
  return type(reply) == 'table' and type(reply[1]) == 'table'
end

return quick_path
