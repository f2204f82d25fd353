-- BullMQ's script would repeat some commands for each job of a batch with the same result; these handlers
-- (redis/hooked-redis) run them once.
local batch_once = {}

function batch_once.handlers(base)
  local call, handlers = redis.call, {}
  local marker, meta = base .. 'marker', base .. 'meta'
  local marked, trimmed, attributes, most_events = false, false, {}, nil
  -- A fetch reads four attributes of the queue: whether it is paused, and its limits; an add reads two of them.
  function handlers.HMGET(command, key, ...)
    if key ~= meta then return call(command, key, ...) end
    local count = select('#', ...)
    if count ~= 4 and count ~= 2 then return call(command, key, ...) end
    attributes[count] = attributes[count] or call(command, key, ...)
    return attributes[count]
  end
  -- An end or an add reads how many events are kept.
  function handlers.HGET(command, key, field)
    if key ~= meta or field ~= 'opts.maxLenEvents' then return call(command, key, field) end
    most_events = most_events or call(command, key, field)
    return most_events
  end
  function handlers.XTRIM(...)
    if not trimmed then call(...) end
    trimmed = true
  end
  function handlers.ZADD(command, key, score, member, ...)
    if key ~= marker or member ~= '0' then return call(command, key, score, member, ...) end
    if not marked then call(command, key, score, member) end
    marked = true
    return 0
  end
  return handlers
end

return batch_once
